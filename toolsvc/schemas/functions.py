"""Tools as function-calling schemas: OpenAI's form with `returns`, the schema of the output; pure.

{"type": "function",
 "function": {"name", "description", "parameters": schema}, "returns": schema}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolsvc.schemas.validation import BadSchema, check_schema, closed
from toolwright.reading.thoughts import after_thoughts

NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"

_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


class NotTools(ValueError):
    """The data are not tools. The message names the place and the fault."""


class FunctionTool(BaseModel):
    """One tool, described by its schemas."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(pattern=NAME)
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: dict(_NO_ARGUMENTS))
    returns: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The tool as a model sees it."""
        return self.model_dump(exclude_none=True)


def function_tools(data: Any) -> list[FunctionTool]:
    """The tools of a list, or of an object with `tools`. Raises NotTools for the first wrong
    tool."""
    if isinstance(data, Mapping):
        data = data.get("tools")
    if not isinstance(data, list) or not data:
        raise NotTools("give a list of tools, or an object with the list `tools`")
    tools = [_function_tool(number, entry) for number, entry in enumerate(data)]
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise NotTools(f"two tools are called {name!r}")
    return tools


def _function_tool(number: int, entry: Any) -> FunctionTool:
    if not isinstance(entry, Mapping):
        raise NotTools(f"tool {number} is not an object")
    function = entry.get("function", entry)
    if not isinstance(function, Mapping):
        raise NotTools(f"tool {number}: `function` is not an object")
    try:
        tool = FunctionTool.model_validate({"returns": entry.get("returns"), **function})
        for schema in (tool.parameters, tool.returns or {}):
            check_schema(schema)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise NotTools(f"tool {number}: {place}: {first['msg']}") from error
    except BadSchema as error:
        raise NotTools(f"tool {number}, {function.get('name')}: {error}") from error
    parameters = {"properties": {}, **tool.parameters}
    if parameters.setdefault("type", "object") != "object":
        raise NotTools(f"tool {number}, {tool.name}: parameters must be an object")
    returns = None if tool.returns is None else closed(tool.returns)
    return tool.model_copy(update={"parameters": closed(parameters), "returns": returns})


def json_in(text: str) -> Any:
    """The JSON value of a model's answer, which may be between fences or words. Raises ValueError
    for an answer without JSON."""
    body = after_thoughts(text)
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    with suppress(ValueError, RecursionError):
        return decoder.decode(body)
    for start in sorted(at for at in (body.find("{"), body.find("[")) if at >= 0):
        with suppress(ValueError, RecursionError):
            return decoder.raw_decode(body, start)[0]
    raise ValueError("the answer holds no JSON")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
