"""`tasks list`: the sets that can be read, and the worlds that can be made."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from tasks.commands.endings import one_sentence
from tasks.errors import UnknownName
from tasks.sets.evaluation import EVALUATION
from tasks.sets.layout import Layout
from tasks.sets.training import TRAINING
from tasks.worlds import WORLDS
from toolwright.process.command_line import first_sentence


def list_sets(
    match: Annotated[
        str, typer.Option(help="only what has this in its name, its task or its title")
    ] = "",
) -> None:
    """List the published sets that can be read, with the columns that are looked for, and the
    worlds that can be made.

    Nothing is fetched: the user brings the files. `a | b` is a column that was
    published under either name; `a.b` is inside of the column a.
    """
    with one_sentence():
        parts = [
            ("Sets for training", _sets(TRAINING, match)),
            ("Sets for evaluation", _sets(EVALUATION, match)),
            ("Worlds, for `tasks make`", _worlds(match)),
        ]
        if not any(lines for _, lines in parts):
            raise UnknownName(f"nothing matches {match!r:.80}: `tasks list` alone shows all")
        typer.echo("\n\n".join("\n".join((title, *lines)) for title, lines in parts if lines))


def _sets(layouts: tuple[Layout, ...], match: str) -> list[str]:
    wanted = match.lower()
    return [
        _described(layout)
        for layout in layouts
        if wanted in f"{layout.name} {layout.task} {layout.title}".lower()
    ]


def _worlds(match: str) -> list[str]:
    wanted = match.lower()
    described = {
        name: first_sentence(import_module(module).__doc__ or "") for name, module in WORLDS.items()
    }
    return [
        f"  {name}\n      {what}"
        for name, what in described.items()
        if wanted in f"{name} {what}".lower()
    ]


def _described(layout: Layout) -> str:
    columns = ", ".join(
        " | ".join(names)
        for names in (
            (*layout.question, *layout.messages),
            layout.images,
            layout.videos,
            layout.answer,
        )
        if names
    )
    rows = "" if layout.rows == "-" else f"; rows {layout.rows}"
    return (
        f"  {layout.name} ({layout.task})\n"
        f"      {layout.title}{rows}\n"
        f"      columns {columns}\n"
        f"      from {layout.where}"
    )
