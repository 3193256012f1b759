"""The tools that a row carries, as its publisher wrote them. Pure."""

from __future__ import annotations

import ast
import json
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from engine.conversations.types import BrokenRow
from engine.types import ToolSpec
from toolwright.json_data import check_depth, read_exact
from toolwright.text.schemas import in_order

LONGEST_LITERAL = 100_000
"""Characters of a text in Python's spelling: its parser takes a hundred bytes for each."""


def tools_in(found: Any) -> tuple[ToolSpec, ...]:
    """Of a list of `{"type": "function", "function": {...}}`, or of the functions alone; a text is
    read as JSON first. BrokenRow for anything else."""
    if isinstance(found, str):
        found = data_in(found, "tools")
    if isinstance(found, Mapping):
        found = [found]
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise BrokenRow(f"tools are a {type(found).__name__}: write a list of functions")
    tools = tuple(_tool(number, one) for number, one in enumerate(found))
    for name, count in Counter(tool.name for tool in tools).items():
        if count > 1:
            raise BrokenRow(f"{count} tools are called {name!r:.80}: a call could mean any of them")
    return tools


def arguments_in(name: str, found: Any) -> Mapping[str, Any]:
    """A call's arguments, of an object or of the JSON text of one. BrokenRow for others."""
    if isinstance(found, str):
        found = json_in(found, f"the arguments of {name!r:.80}") if found.strip() else {}
    if found is None:
        found = {}
    if not isinstance(found, Mapping):
        raise BrokenRow(
            f"the arguments of {name!r:.80} are a {type(found).__name__}: write an object"
        )
    return found


def json_in(text: str, what: str) -> Any:
    """BrokenRow where it is no JSON, is nested too deeply, or has half a surrogate pair."""
    try:
        return read_exact(text)
    except ValueError as error:
        raise BrokenRow(f"{what}: no JSON ({error})") from error


def data_in(text: str, what: str) -> Any:
    """JSON, or the same data as Python prints them: half of the published Hermes rows have quotes
    of that kind. BrokenRow for anything else."""
    text = text.strip()
    try:
        return json_in(text, what)
    except BrokenRow:
        if len(text) > LONGEST_LITERAL:
            raise
        try:
            with warnings.catch_warnings(action="ignore"):  # of odd escapes and numbers in it
                found = ast.literal_eval(text)
            check_depth(found)
            _check_json(found)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            pass  # the first error says more to those who write JSON
        else:
            return found
        raise


def _check_json(found: Any) -> None:
    """TypeError or ValueError for data that JSON text would not give: other types, keys that are no
    text (1 and "1" would be one), numbers without end, half a surrogate pair."""
    if isinstance(found, dict):
        for key, value in found.items():
            if not isinstance(key, str):
                raise TypeError(f"a key that is a {type(key).__name__}")
            key.encode()
            _check_json(value)
    elif isinstance(found, list | tuple):
        for value in found:
            _check_json(value)
    else:
        json.dumps(found, allow_nan=False, ensure_ascii=False).encode()


def _tool(number: int, found: Any) -> ToolSpec:
    function = found.get("function", found) if isinstance(found, Mapping) else None
    if not isinstance(function, Mapping):
        raise BrokenRow(
            f'tool {number + 1} is no function: write {{"type": "function", "function": '
            '{"name", "description", "parameters"}}'
        )
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str) or not name:
        raise BrokenRow(f"tool {number + 1} has no name: write one as its function's `name`")
    parameters = function.get("parameters")
    if not isinstance(parameters, Mapping | None):
        raise BrokenRow(f"the parameters of tool {name!r:.80} are no JSON schema: write an object")
    return ToolSpec(
        name=name,
        description=description if isinstance(description, str) else "",
        arguments_schema=in_order(parameters or {}),
        json_call=True,
    )
