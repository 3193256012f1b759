"""`engine eval RECIPE`: runs the recipe's suites with the weights that the samplers serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.config import EngineTable
from engine.core.build import one_task
from engine.errors import StartupError
from engine.offline.evaluate.evaluator import Evaluator
from engine.offline.evaluate.folder import LOG, EvaluationFolder
from engine.offline.evaluate.options import EvaluationOptions
from engine.offline.evaluate.results.figures import write_results
from engine.offline.signals import raise_on_signal, run_until_signal
from engine.serving.evaluation import check_tasks
from engine.serving.telemetry.logs import log_to
from toolwright.recipe import Recipe, is_open, refuse_open_ports


async def evaluate(
    recipe: Recipe, table: EngineTable, options: EvaluationOptions, show: Callable[[str], None]
) -> dict[str, Any]:
    """Evaluates a recipe and returns the results, which its folder holds as well.

    show: prints a line. Raises EngineError if it cannot go on, StoppedBySignal after a signal.
    Finished rows stay in both cases.
    """
    for url in recipe.shared.sampler.endpoints:
        if is_open(url):
            raise StartupError(
                f"sampler.endpoints = {url!r}: only `toolwright run` chooses that port; name the "
                "servers with the weights by --endpoint http://HOST:PORT"
            )
    refuse_open_ports(recipe, "tools")
    check_tasks(table.evaluation.suites, recipe.shared.each_task)
    recipe, table = (
        one_task(recipe, options.task, "`engine eval`"),
        suites_of_task(table, options.task),
    )
    path = options.output or recipe.run_folder / "-".join(filter(None, ("eval", options.task)))
    folder = EvaluationFolder(path)
    try:
        folder.claim()
        log_to(path / LOG)
        evaluator = Evaluator(recipe, table, folder, options)
        await run_until_signal(evaluator.run(show))
        with raise_on_signal():
            found = write_results(path, options.results)
        show(f"{path}")
        return found
    finally:
        folder.close()


def suites_of_task(table: EngineTable, name: str) -> EngineTable:
    """The table with the suites of one task alone; "" = the task of a recipe with one."""
    suites = tuple(suite for suite in table.evaluation.suites if suite.task == name)
    evaluation = table.evaluation.model_copy(update={"suites": suites})
    return table.model_copy(update={"evaluation": evaluation})
