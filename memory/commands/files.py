"""A memory as files that people share: memory.json, and each tool as a plug-in of `toolsvc`. Pure.

Code and texts come from a stranger. What a person reads in the Python file is what Python runs. The
code stands whole, as it was parsed, without invisible characters. Texts stand as literals, so that
no text becomes code.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from memory.admission import MOST_EDGES
from memory.errors import BadWork
from memory.graph.changes import tool_to_json
from memory.graph.graph import ToolGraph
from memory.graph.guards import misnamed
from memory.graph.naming import says
from memory.types import GroupWork, Node, RolloutWork, Stats, Tool
from toolwright import json_data

FORMAT = "toolwright.memory/1"
TOOLS_EACH = 500
"""Maximum number of tools in one change of an import."""

Edge = tuple[str, str, int]
T = TypeVar("T")

_PLUGIN = '''\


# What follows was written by `memory export`.

_exported_function = {name}

from json import loads as _exported_loads  # noqa: E402

from toolsvc.schemas.schema_tool import SchemaTool as _ExportedBase  # noqa: E402


class ExportedTool(_ExportedBase):
    """A tool of a memory. Served from a file it runs inside of the service, unconfined."""

    name = {name_text}
    description = {description}
    schema = _exported_loads({schema})

    def call(self, state, call):
        return _exported_function(**call.arguments)
'''
_OURS = ("_exported_function", "_exported_loads", "_ExportedBase", "ExportedTool")
"""Names of the plug-in: code that has one of them would change its meaning in such a file."""


class NoFile(ValueError):
    """A tool that cannot be a file; the message says why."""


def python_file(tool: Tool) -> str:
    """The tool as a file for `toolsvc serve`. Raises NoFile."""
    if reason := misnamed(tool.name):
        raise NoFile(reason)
    for word in _OURS:
        if says(tool.code, word):
            raise NoFile(f"{tool.name}: its code has the word {word}, which the file needs")
    said = f"{tool.description} Returns {tool.returns}" if tool.returns else tool.description
    text = tool.code + _PLUGIN.format(
        name=tool.name,
        name_text=json.dumps(tool.name),
        description=ascii(said),
        schema=ascii(json.dumps(_schema(tool))),
    )
    for part in (tool.code, text):
        _check_seen(tool.name, part)
    return text


def _check_seen(name: str, text: str) -> None:
    """Raises NoFile if a reader of the text would see another program than Python runs."""
    if unseen := next((c for c in text if not c.isprintable() and c not in "\n\t"), ""):
        raise NoFile(f"{name}: its code has the invisible character U+{ord(unseen):04X}")
    try:
        # A text is read as it stands; a file's bytes are read as a coding cookie in them says.
        same = ast.dump(ast.parse(text)) == ast.dump(ast.parse(text.encode()))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NoFile(f"{name}: its code is not a file by itself: {error}") from error
    if not same:
        raise NoFile(f"{name}: its code names an encoding in which it is another program")


def whole(graph: ToolGraph) -> str:
    """The graph as JSON that `works` reads: the same graph, the same bytes."""
    data = {
        "format": FORMAT,
        "version": graph.version,
        "tools": [_told(node) for node in graph.nodes],
        "edges": [
            [graph.by_id[one].name, graph.by_id[other].name, count]
            for (one, other), count in graph.edges.items()
        ],
    }
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Content of such a file. used: calls of each tool, by its name. edges: (from, to, count), by
    the names in the file."""

    tools: tuple[Tool, ...]
    used: Mapping[str, Stats]
    edges: tuple[Edge, ...]

    def works(self, key: str, *, delta: float) -> Iterator[GroupWork]:
        """The work that adds its tools to a memory; the names of the changes begin with `key`."""
        for number, tools in _batched(self.tools, TOOLS_EACH):
            used = {tool.name: self.used[tool.name] for tool in tools}
            yield _work(f"{key}/{number}", key, delta, candidates=tools, used=used)

    def joins(self, names: Mapping[str, str], key: str, *, delta: float) -> Iterator[GroupWork]:
        """The work that adds its edges after the tools. names: name of a tool in the file -> its
        name in the memory, where another tool may have the first name."""
        known = tuple(
            (names[one], names[other], count)
            for one, other, count in self.edges
            if one in names and other in names
        )
        for number, edges in _batched(known, MOST_EDGES):
            yield _work(f"{key}/edges/{number}", key, delta, edges=edges)


def shared(file: bytes) -> Shared:
    """What `whole` wrote. Raises BadWork for any other file."""
    try:
        data = json.loads(file.decode())
        if data["format"] != FORMAT:
            raise BadWork(f"the file is {data['format']!r:.80}, not {FORMAT!r}")
        tools = tuple(_tool(one) for one in data["tools"])
        used = {
            one["name"]: Stats(
                calls=int(one["calls"]),
                successes=int(one["successes"]),
                last_used=-1,
                seconds=float(one["seconds"]),
            )
            for one in data["tools"]
        }
        if len(used) < len(tools):
            raise BadWork("the file has two tools of one name")
        edges = tuple((str(a), str(b), int(count)) for a, b, count in data["edges"])
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        reason = f"{error!r:.300}"
        raise BadWork(f"the file is not what `memory export` writes: {reason}") from error
    return Shared(tools=tools, used=used, edges=edges)


def _batched(things: tuple[T, ...], each: int) -> Iterator[tuple[int, tuple[T, ...]]]:
    """(0, the first of them), (1, the next), ..."""
    for number, start in enumerate(range(0, len(things), each)):
        yield number, things[start : start + each]


def _work(group: str, key: str, delta: float, **parts: Any) -> GroupWork:
    rollout = RolloutWork(trajectory=key, **parts)
    return GroupWork(group=group, step=0, rollouts=(rollout,), registers=key, delta=delta)


def _told(node: Node) -> dict[str, Any]:
    stats = node.stats
    return {
        **tool_to_json(node.tool),
        "calls": stats.calls,
        "successes": stats.successes,
        "seconds": stats.seconds,
    }


def _tool(data: Mapping[str, Any]) -> Tool:
    texts = {name: data[name] for name in ("name", "description", "code", "arguments", "returns")}
    inputs = data["inputs"]
    if not all(isinstance(text, str) for text in (*texts.values(), *inputs)):
        raise TypeError("texts of a tool that are not strings")
    if not isinstance(data["schema"], Mapping):
        raise TypeError("a schema that is not an object")
    json_data.check_depth(data["schema"])
    return Tool(**texts, schema=data["schema"], inputs=tuple(inputs))


def _schema(tool: Tool) -> Mapping[str, Any]:
    return tool.schema or {"type": "object", "properties": {}}
