"""`engine eval RECIPE`: the recipe's suites, asked of the weights that the samplers serve."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from engine.config import EngineTable
from engine.core.build import one_task
from engine.errors import StartupError
from engine.offline.evaluate.evaluator import Evaluator, Wanted
from engine.offline.evaluate.folder import LOG, EvaluationFolder
from engine.offline.evaluate.questions import Subset
from engine.offline.evaluate.results.figures import Reading, write_results
from engine.offline.stopping import stoppable, until_stopped
from engine.serving.evaluation import check_tasks
from engine.serving.telemetry.logs import log_to
from toolwright.recipe import Recipe, is_open, refuse_open_ports


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says. task: of several in the recipe. output: None = "eval" in the
    run's folder, "eval-TASK" for one of several."""

    task: str = ""
    output: Path | None = None
    suites: tuple[str, ...] = ()
    subset: int | None = None
    subset_seed: int = 0
    samples: int = 1
    temperature: float | None = None
    concurrency: int | None = None
    fresh: bool = False
    reading: Reading = field(default_factory=Reading)
    progress: TextIO = field(default_factory=lambda: sys.stderr)


async def evaluate(
    recipe: Recipe, table: EngineTable, options: Options, show: Callable[[str], None]
) -> dict[str, Any]:
    """The results of a recipe's evaluation, which are in its folder as well. EngineError for what
    cannot go on, Stopped by a signal; what is done stays in both cases."""
    for url in recipe.shared.sampler.endpoints:
        if is_open(url):
            raise StartupError(
                f"sampler.endpoints = {url!r} is a port that `toolwright run` would choose: say "
                "which servers have the weights with --endpoint http://HOST:PORT"
            )
    refuse_open_ports(recipe, "tools")
    check_tasks(table.evaluation.suites, recipe.shared.each_task)
    recipe, table = one_task(recipe, options.task, "`engine eval`"), of_task(table, options.task)
    path = options.output or recipe.run_folder / "-".join(filter(None, ("eval", options.task)))
    folder = EvaluationFolder(path)
    try:
        folder.claim()
        log_to(path / LOG)
        wanted = Wanted(
            suites=options.suites,
            subset=Subset(n=options.subset, seed=options.subset_seed) if options.subset else None,
            samples=options.samples,
            temperature=options.temperature,
            concurrency=options.concurrency,
            fresh=options.fresh,
        )
        evaluator = Evaluator(recipe, table, folder, wanted)
        await until_stopped(evaluator.run(options.progress, options.reading.by, show))
        with stoppable():
            found = write_results(path, options.reading)
        show(f"{path}")
        return found
    finally:
        folder.close()


def of_task(table: EngineTable, name: str) -> EngineTable:
    """The table with the suites of this task alone; "" = of the only one."""
    suites = tuple(suite for suite in table.evaluation.suites if suite.task == name)
    evaluation = table.evaluation.model_copy(update={"suites": suites})
    return table.model_copy(update={"evaluation": evaluation})
