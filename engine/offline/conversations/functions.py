"""The tools that a row carries, as its publisher wrote them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from engine.offline.conversations.types import BrokenRow
from engine.types import ToolSpec
from toolwright.reading.task_rows.data import data_in
from toolwright.reading.task_rows.nulls import schema_without_nulls
from toolwright.text.schemas import in_order


def tools_in(found: Any) -> tuple[ToolSpec, ...]:
    """Tools of a list of `{"type": "function", "function": {...}}`, or of bare functions.

    A text is read as JSON first. Raises BrokenRow for anything else.
    """
    if isinstance(found, str):
        found = data_from(found, "tools")
    if isinstance(found, Mapping):
        found = [found]
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise BrokenRow(f"tools are a {type(found).__name__}: write a list of functions")
    tools = tuple(_tool(number, one) for number, one in enumerate(found))
    for name, count in Counter(tool.name for tool in tools).items():
        if count > 1:
            raise BrokenRow(f"{count} tools are called {name!r:.80}: give each a name of its own")
    return tools


def data_from(text: str, what: str) -> Any:
    """Data from JSON, or from a Python literal: half of the published Hermes rows have its quotes.

    Raises BrokenRow for anything else. what: name of the text in its message.
    """
    try:
        return data_in(text)
    except ValueError as error:
        raise BrokenRow(f"{what}: not JSON ({error}): write it as JSON") from error


def _tool(number: int, found: Any) -> ToolSpec:
    function = found.get("function", found) if isinstance(found, Mapping) else None
    if not isinstance(function, Mapping):
        raise BrokenRow(
            f'tool {number + 1} is not a function: write {{"type": "function", "function": '
            '{"name", "description", "parameters"}}'
        )
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str) or not name:
        raise BrokenRow(f"tool {number + 1} has no name: write one as its function's `name`")
    parameters = function.get("parameters")
    if not isinstance(parameters, Mapping | None):
        raise BrokenRow(
            f"the parameters of tool {name!r:.80} are not a JSON schema: write an object"
        )
    return ToolSpec(
        name=name,
        description=description if isinstance(description, str) else "",
        arguments_schema=in_order(schema_without_nulls(parameters or {})),
        json_call=True,
    )
