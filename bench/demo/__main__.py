"""`python -m bench.demo`: the calculator's demonstration, from random weights to a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.demo.commands import Commands
from bench.demo.session import demonstrate, overrides_of
from bench.demo.subject import CALCULATOR

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def demo(
    seeds: Annotated[int, typer.Option(min=1, help="runs, with seeds 1, 2, ...")] = 1,
    control: Annotated[bool, typer.Option("--control", help="and one with rate 0")] = False,
    steps: Annotated[int | None, typer.Option(min=1, help="training steps; the recipe's")] = None,
    folder: Annotated[Path | None, typer.Option(help="new folder; runs/<time>-demo")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.KEY=VALUE", help="replaces a value of the recipe"),
    ] = None,
) -> None:
    """Train the calculator agent from nothing, with every process real, and write a report."""
    demonstrate(
        "demo",
        Commands(subject=CALCULATOR),
        folder=folder,
        seeds=seeds,
        control=control,
        overrides=overrides_of(set_, steps),
    )


if __name__ == "__main__":
    app()
