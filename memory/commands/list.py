"""`memory list`: the tools of a memory, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from memory.commands.endings import one_sentence
from memory.commands.reading import Store, Version, graph_of, memory_of
from memory.types import Node
from toolwright.page.text import plain

SHOWN = 80
"""Characters of a description."""


def list_tools(
    store: Store,
    match: Annotated[str, typer.Option(help="only what a plan with this text would find")] = "",
    most: Annotated[int, typer.Option(min=1, help="tools at most")] = 100,
    version: Version = None,
) -> None:
    """List the tools of a memory: those with most calls first."""
    with one_sentence():
        if match:
            with memory_of(store) as memory:
                found = memory.retrieve([match], per_subtask=most, in_all=most, version=version)
            _print([one.node for one in found], len(found))
            return
        with graph_of(store, version) as graph:
            nodes = sorted(graph.nodes, key=lambda node: (-node.stats.calls, node.id))
            _print(nodes[:most], len(nodes))
            if waiting := len(graph.waiting):
                typer.echo(f"{waiting} groups wait for the next iteration of their run")


def _print(nodes: Sequence[Node], of: int) -> None:
    table = Table("name", "calls", "worked", "merged", "made at step", "description", box=None)
    for node in nodes:
        stats = node.stats
        worked = f"{stats.successes / stats.calls:.0%}" if stats.calls else ""
        table.add_row(
            Text(plain(node.name, keep="")),
            str(stats.calls),
            worked,
            str(node.support),
            str(node.created_step),
            Text(plain(node.tool.description, keep="")[:SHOWN]),
        )
    console = Console(soft_wrap=True)
    console.print(table)
    if len(nodes) < of:
        console.print(f"{of - len(nodes)} more: --most {of}")
