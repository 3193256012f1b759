"""`memory report`: how a memory grew, as a page or as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from memory.commands.endings import one_sentence
from memory.commands.reading import Store, changes_of, log_of
from memory.opening import shown
from memory.report.growth import growth, to_json


def report(
    store: Store,
    output: Annotated[Path, typer.Option(help="the page to write")] = Path("memory.html"),
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="print the figures instead, a row a training step, or some steps"
        ),
    ] = False,
) -> None:
    """Show how a memory grew by training step, and one part of its graph at four of them."""
    with one_sentence(), log_of(store) as log:
        found = growth(lambda: changes_of(log))
        if as_json:
            typer.echo(json.dumps({"store": shown(store), "steps": to_json(found.rows)}, indent=1))
            return
        from memory.report.page import render

        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(render(found, store=shown(store)), "utf-8")
        typer.echo(f"{output}")
