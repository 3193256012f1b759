"""The `memory` commands in this process, and memories for them to work on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from memory.cli import app
from memory.commands.files import FORMAT
from memory.graph.changes import tool_to_json
from memory.memory import Memory
from memory.opening import open_log
from memory.search.embedding import hashing
from memory.types import GroupWork, Tool
from tests.support.recipes import recipe_tables
from tests.support.tool_memory import calls, registering, tool

HOSTILE = '\x1b[2J</script><img src=x onerror=alert(1)> """ \\ {name} \N{RIGHT-TO-LEFT OVERRIDE}'


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def fill(store: str, *works: GroupWork) -> None:
    log = open_log(store, embedder="hashing")
    memory = Memory(log, hashing)
    for work in works:
        memory.merge_group(work)
    log.close()


def append(store: Path, group: str, data: bytes, after: int = 0) -> None:
    """Past everything that looks at what comes in."""
    log = open_log(str(store), embedder="hashing")
    log.append(group, data, after)
    log.close()


def write_file(file: Path, *tools: Tool, edges: Sequence[tuple[str, str, int]] = ()) -> None:
    """A memory.json with these tools, as somebody else may have written it."""
    counts = {"calls": 0, "successes": 0, "seconds": 0.0}
    whole = {"format": FORMAT, "tools": [{**tool_to_json(one), **counts} for one in tools]}
    file.write_text(json.dumps({**whole, "edges": edges}), encoding="utf-8")


def with_store(folder: Path, store: str) -> dict[str, Any]:
    """Tables of a recipe with a memory."""
    tables = recipe_tables(
        policy=folder, sampler="http://127.0.0.1:1", tools={}, engine="127.0.0.1:2"
    )
    return {**tables, "memory": {"store": store}}


def growing() -> list[GroupWork]:
    square = tool(
        "square",
        "square of a number",
        code="def square(n):\n    return n * n\n",
        schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    )
    return [
        registering("a", square, step=1, counts={"created": 1, "rollouts": 2}),
        registering(
            "b",
            tool("area", "area of a circle"),
            edges=(("square", "area", 2),),
            used={"square": calls(3, 2)},
            step=4,
            counts={"created": 2, "rollouts": 2, "reusing": 1, "retrieved": 2, "called": 3},
        ),
        registering("c", tool("squared", "square of a number"), step=5, counts={"created": 1}),
    ]
