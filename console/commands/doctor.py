"""`toolwright doctor [RECIPE]`: what machine, installation and recipe lack, and the fix."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

EPILOG = (
    "Exit codes: 0 nothing keeps a run from starting, warnings or not; 1 there are problems, "
    "or checks without a result; "
    "2 what was typed makes no sense."
)


def doctor(
    recipe: Annotated[
        Path | None,
        typer.Argument(
            help="a recipe (a file or its folder), or a run folder: look at what it names, too"
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="a dotted override of the recipe")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    bundle: Annotated[
        Path | None, typer.Option(help="also write what a bug report needs into this .zip")
    ] = None,
    with_texts: Annotated[
        bool, typer.Option("--with-texts", help="with --bundle: texts of tasks and answers, too")
    ] = False,
) -> None:
    """Find what keeps a run from starting or makes it slow, and print the fix.

    It changes nothing and sends nothing. It takes less than a minute.
    """
    if bundle is not None and (bundle.suffix != ".zip" or bundle.exists()):
        raise typer.BadParameter(f"{bundle}: name a new FILE.zip", param_hint="--bundle")
    if settings:
        from console.asked.setup import DEFAULT

        if recipe is None or (recipe.is_dir() and not (recipe / DEFAULT).is_file()):
            raise typer.BadParameter("it belongs to a recipe: name RECIPE.toml", param_hint="--set")
    from console.doctor.visit import visit

    failed = visit(recipe, settings or [], as_json=as_json, bundle=bundle, with_texts=with_texts)
    sys.stdout.flush()
    sys.stderr.flush()
    # A check that hangs in a disk or a driver must not keep the command.
    os._exit(1 if failed else 0)
