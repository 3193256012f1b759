"""`toolwright ablate RECIPE`: variations of one recipe, with the same seeds, data and budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EPILOG = (
    "Exit codes: 0 every run is done, the last line is the path of ablate.json; 1 a run failed, "
    "and its row says how; 2 recipe or arguments were refused, and nothing was run; 5 another "
    "`toolwright ablate` works in the folder; 130, 143, 129 stopped by Ctrl-C, SIGTERM, SIGHUP. "
    "The same command goes on."
)


def ablate(
    recipe: Annotated[
        Path, typer.Argument(help="the recipe, one TOML file, or its folder", show_default=False)
    ],
    seeds: Annotated[int, typer.Option(min=1, help="runs of each variation, seeds 1 to N")] = 3,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="run the base and this variation; may be repeated"),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="where all runs lie, each in FOLDER/NAME/seed-N; run.folder with -ablate behind",
            show_default=False,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.KEY=VALUE", help="for every run, the base too"),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="reward to which steps are counted; nine tenths of the base's way",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Compare variations of a recipe: the recipe as it is, and each of [[console.ablations]].

    Every run is one of `toolwright run`, one after the other. Where a variation leaves the warm-up
    as it is, training begins with the policy that the base's run of the same seed made. A run that
    is done is not run again, Ctrl-C stops the run that goes on, and the same command goes on there.

    The table has means over seeds with their standard errors, and differences to the base by seed:
    held-out scores, the reward at the end, the area under its curve, steps to a threshold. A
    difference that chance alone would give is called noise. FOLDER/ablate.html shows the curves.
    """
    from console.machine.signals import no_traceback

    with no_traceback():
        from console.ablate.climbing import ablate as climb
        from console.ablate.ladder import LadderOptions

        asked = LadderOptions(
            recipe=recipe,
            overrides=tuple(set_ or ()),
            seeds=seeds,
            only=tuple(only or ()),
            folder=folder,
            threshold=threshold,
        )
        status = climb(asked)
    raise typer.Exit(status)
