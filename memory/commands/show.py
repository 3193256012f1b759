"""`memory show`: everything about one tool."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from memory.commands.endings import one_sentence
from memory.commands.reading import Store, Version, graph_of, node_of
from memory.graph.graph import ToolGraph
from memory.types import Node
from toolwright.page.text import plain


def show(
    store: Store,
    name: Annotated[str, typer.Argument(help="the tool's name, or a name that was merged into it")],
    version: Version = None,
) -> None:
    """Show one tool: description, schema, names merged into it, calls, neighbours, code."""
    with one_sentence(), graph_of(store, version) as graph:
        for line in _lines(graph, node_of(graph, name)):
            typer.echo(line)


def _lines(graph: ToolGraph, node: Node) -> list[str]:
    tool, stats = node.tool, node.stats
    after = [graph.by_id[b].name for (a, b) in graph.edges if a == node.id]
    before = [graph.by_id[a].name for (a, b) in graph.edges if b == node.id]
    facts = {
        "name": tool.name,
        "description": tool.description,
        "arguments": json.dumps(tool.schema, ensure_ascii=True),
        "returns": tool.returns,
        "also called": ", ".join(node.aliases),
        "tools merged": str(node.support),
        "made": f"at step {node.created_step}" + (f" by {node.source}" if node.source else ""),
        "calls": f"{stats.calls}, {stats.successes} of them worked, {stats.seconds:.1f} s in all",
        "comes after": ", ".join(before),
        "comes before": ", ".join(after),
        "inputs": "; ".join(tool.inputs),
    }
    said = [f"{key}: {plain(value, keep='')}" for key, value in facts.items() if value]
    code = ["", *plain(tool.code).splitlines()]
    return [*said, *code]
