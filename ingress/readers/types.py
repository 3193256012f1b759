"""The interface of readers of tool calls, and what several of them need. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ingress.types import Piece, ReadCall, Words

Tools = Sequence[Mapping[str, Any]]
"""Each as {"type": "function", "function": {"name", "parameters"}}."""
BLANKS = " \t\r\n"


class ToolReader(Protocol):
    """Reads one completion's text, piece by piece. The pieces change nothing."""

    def feed(self, text: str) -> list[Piece]:
        """Takes the next text. Returns the pieces that are certain by now."""
        ...

    def end(self) -> list[Piece]:
        """Returns the rest. The completion has ended."""
        ...


class NotACall(ValueError):
    """A text is not a call; the message is the note."""


class PlainReader:
    """Reads no calls: the request has no tools."""

    def feed(self, text: str) -> list[Piece]:
        return words(text)

    def end(self) -> list[Piece]:
        return []


def words(text: str) -> list[Piece]:
    """The text as a piece; nothing for an empty text."""
    return [Words(text=text)] if text else []


def read_call(name: str, arguments: Mapping[str, Any]) -> ReadCall:
    """A call as the client gets it."""
    return ReadCall(name=name, arguments=json.dumps(arguments, ensure_ascii=False))


def possible_start(text: str, tag: str) -> int:
    """Place from which on the text may begin the tag, with the blanks before it; its length if it
    does not end so."""
    sizes = range(min(len(tag) - 1, len(text)), 0, -1)
    size = next((size for size in sizes if text.endswith(tag[:size])), 0)
    return len(text[: len(text) - size].rstrip(BLANKS))


def function_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """The function that a tool is."""
    found = tool.get("function", tool)
    return found if isinstance(found, Mapping) else {}


def schema_of(tools: Tools, name: str) -> Mapping[str, Any]:
    """JSON Schema of a function's arguments; empty without one."""
    for tool in tools:
        function = function_of(tool)
        if function.get("name") == name:
            schema = function.get("parameters")
            return schema if isinstance(schema, Mapping) else {}
    return {}
