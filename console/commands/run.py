"""`toolwright run RECIPE`: one command for a run, from what is missing to its report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

EPILOG = (
    "Exit codes: 0 done, the last line is the path of summary.json; 1 a sentence says what failed, "
    "and its log; 2 recipe or arguments were refused; 3 the training diverged; 4 there was nothing "
    "to learn from; 5 another process has the run; 130, 143, 129 stopped by Ctrl-C, SIGTERM, "
    "SIGHUP. In all but the first case the same command goes on where it ended."
)


def run(
    recipe: Annotated[
        Path, typer.Argument(help="the recipe, one TOML file, or its folder", show_default=False)
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.KEY=VALUE", help="replaces a value of the recipe"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="of the whole run, its warm-up too; the recipe's")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="the run's folder in place of run.folder; what the recipe makes inside of "
            "run.folder is made there anew",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=0, help="training steps, 0 = evaluate alone; the recipe's")
    ] = None,
    remake: Annotated[
        bool,
        typer.Option(
            "--remake", help="make again what was made first from settings that have changed"
        ),
    ] = False,
) -> None:
    """Train: start what the recipe names, watch it, end it, and write the report.

    What the recipe names and what is missing is made first: [[console.prepare]], [render], [sft].
    Samplers, tool services, engine and learner are started where they do not answer already, each
    a process of its own with its log in RUN/console/logs. When the last step is done, its
    evaluation is awaited, everything that was started is stopped, and RUN/report.html and
    RUN/summary.json are written.

    Ctrl-C stops in order: the learner finishes its step and writes a checkpoint. A second Ctrl-C
    ends everything at once. The same command goes on with a run, whatever ended it; a finished run
    goes on with a larger --steps.
    """
    from console.machine.signals import no_traceback

    with no_traceback():
        from console.asked.setup import Options
        from console.course.session import run as start

        options = Options(
            recipe=recipe,
            overrides=tuple(set_ or ()),
            seed=seed,
            folder=folder,
            steps=steps,
            remake=remake,
        )
        ending = start(options, ["toolwright", *sys.argv[1:]])
    raise typer.Exit(ending.status)
