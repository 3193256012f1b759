"""`bench study`: makes a study's runs, measures them, and draws its page's table and picture."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from bench.errors import BenchError, UsageError
from bench.studies.types import Study

MODULES = {
    "step-credit": "step_credit",
    "counterfactual-rewards": "counterfactual_rewards",
    "policy-or-memory": "policy_or_memory",
    "cheats": "cheats",
}
"""Modules of the studies by name. They are loaded late, since they need the learner."""
PICTURES = Path("docs/results")
FIGURES = Path("bench/results")


def study(
    name: Annotated[str, typer.Argument(help="One of: " + ", ".join(MODULES) + ".")],
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder of its runs; runs/study-NAME if absent.", show_default=False),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs, with the seeds 1 to N.")] = 3,
    draw: Annotated[
        bool, typer.Option("--draw", help="Only table and picture, from the figures' file.")
    ] = False,
) -> None:
    """Make a study's runs, measure them, and write figures, table and picture.

    Finished runs are not made again, and an interrupted one goes on. The figures are written to
    bench/results/NAME.json, the picture to docs/results/NAME.svg, both below the current folder;
    the table is printed. --draw makes both from the figures' file, without a run.

    \b
    Examples:
        bench study step-credit                  # three runs of a quarter of an hour, two cores
        bench study step-credit --draw
        bench study policy-or-memory --folder runs/study-step-credit     # reads those runs
        bench study cheats                       # no training: half an hour
    """
    from bench.studies.training import trained

    found = study_of(name)
    file = FIGURES / f"{name}.json"
    if draw:
        if not file.exists():
            raise BenchError(f"no figures in {file}: `bench study {name}` makes them")
        figures = json.loads(file.read_text(encoding="utf-8"))
    else:
        home = folder or Path("runs") / f"study-{name}"
        runs = {0: home}
        if found.recipe:
            runs = trained(found.recipe, range(1, seeds + 1), home, found.settings)
        figures = found.measure(runs)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / f"{name}.svg").write_text(found.picture(figures), encoding="utf-8")
    typer.echo(found.table(figures))


def study_of(name: str) -> Study:
    """The study of that name. Raises UsageError for another name."""
    if name not in MODULES:
        raise UsageError(f"there is no study {name}: name one of {', '.join(MODULES)}")
    found: Study = import_module(f"bench.studies.{MODULES[name]}").STUDY
    return found
