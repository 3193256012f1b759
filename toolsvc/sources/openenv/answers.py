"""What an OpenEnv server says of tools and their results, as JSON; pure.

An action is OpenEnv's own for tools: `{"type": "call_tool", "tool_name", "arguments"}`, or
`{"type": "list_tools"}`. So its `MCPToolClient` and `GenericEnvClient` are clients, unchanged.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolsvc.types import Media, Text
from toolwright import wire
from toolwright.common.v1 import reasons_pb2
from toolwright.text.schemas import in_order
from toolwright.tool.v1 import tool_pb2 as pb

VERSION = "1.0.0"
"""Version of OpenEnv's HTTP interface."""
_TEXT, _OBJECT = {"type": "string"}, {"type": "object"}
ACTION = {
    "type": "object",
    "properties": {
        "type": {"enum": ["call_tool", "list_tools"], "default": "call_tool"},
        "tool_name": _TEXT,
        "arguments": _OBJECT,
        "metadata": _OBJECT,
    },
}
OBSERVATION = {
    "type": "object",
    "properties": {
        "tools": {"type": "array", "items": _OBJECT},
        "tool_name": _TEXT,
        "result": {},
        "error": {"type": ["object", "null"]},
        "reward": {"type": ["number", "null"]},
        "done": {"type": "boolean"},
        "metadata": _OBJECT,
    },
}
STATE = {
    "type": "object",
    "properties": {"episode_id": {"type": ["string", "null"]}, "step_count": {"type": "integer"}},
}
_KINDS = {
    reasons_pb2.TOOL_ERROR_KIND_INVALID_ACTION: "invalid_args",
    reasons_pb2.TOOL_ERROR_KIND_UNKNOWN_TOOL: "tool_not_found",
    reasons_pb2.TOOL_ERROR_KIND_TIMEOUT: "timeout",
}
"""OpenEnv's names of errors; any other error is an `execution_error`."""


class UnfitMessage(Exception):
    """A message that does not fit its schema. loc: path of the wrong field."""

    def __init__(self, loc: str, message: str) -> None:
        super().__init__(f"{loc}: {message}")
        self.faults = [{"loc": [loc], "msg": message, "type": "value_error"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAction:
    """A call of a tool; without a name the action lists the tools."""

    name: str = ""
    arguments: Mapping[str, Any]


def read_action(data: Any) -> ToolAction:
    """Raises UnfitMessage."""
    if not isinstance(data, dict):
        raise UnfitMessage("action", "write an object")
    for name in data:
        if name not in ACTION["properties"]:
            raise UnfitMessage(name, "there is no such field")
    kind = data.get("type", "call_tool")
    if kind == "list_tools":
        return ToolAction(arguments={})
    if kind != "call_tool":
        raise UnfitMessage("type", "write call_tool or list_tools")
    name, arguments = data.get("tool_name"), data.get("arguments", {})
    if not isinstance(name, str) or not name:
        raise UnfitMessage("tool_name", "write the name of a tool")
    if not isinstance(arguments, dict):
        raise UnfitMessage("arguments", "write an object")
    return ToolAction(name=name, arguments=arguments)


def read_reset(data: Any) -> dict[str, Any]:
    """Arguments of a reset: the metadata of its session. Raises UnfitMessage."""
    if not isinstance(data, dict):
        raise UnfitMessage("data", "write an object")
    return data


def tools_of(tools: Iterable[pb.ToolDescriptor], schema: str) -> list[dict[str, Any]]:
    """Tools with the schemas of their arguments. schema: name of that field."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            schema: in_order({"type": "object", **wire.mapping(tool.arguments_schema)}),
        }
        for tool in tools
    ]


def listed(tools: Iterable[pb.ToolDescriptor]) -> dict[str, Any]:
    """Observation of a reset, and of `list_tools`."""
    observation = {"tools": tools_of(tools, "input_schema"), "metadata": {}}
    return {"observation": observation, "reward": None, "done": False}


def observed(result: pb.CallResult, name: str, parts: Sequence[Text | Media]) -> dict[str, Any]:
    """Observation of a call. parts: of the result's observation."""
    error = None
    if result.HasField("error"):
        kind = _KINDS.get(result.error.kind, "execution_error")
        error = {"error_type": kind, "message": result.error.message}
    observation = {
        "tool_name": name,
        "result": content(parts),
        "error": error,
        "metadata": dict(result.metrics),
    }
    reward = result.reward if result.HasField("reward") else None
    return {"observation": observation, "reward": reward, "done": result.done}


def content(parts: Sequence[Text | Media]) -> Any:
    """The text; with media, a list of MCP's content."""
    if all(isinstance(part, Text) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, Text))
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, Text)
        else {
            "type": part.media_type.partition("/")[0],
            "mimeType": part.media_type,
            "data": base64.b64encode(part.data).decode(),
        }
        for part in parts
    ]


def openapi(name: str) -> dict[str, Any]:
    """The interface as OpenAPI: what OpenEnv's validator and its clients look for."""

    def route(method: str, does: str) -> dict[str, Any]:
        return {method: {"summary": does, "responses": {"200": {"description": "as JSON"}}}}

    return {
        "openapi": "3.1.0",
        "info": {"title": name, "version": VERSION},
        "paths": {
            "/health": route("get", "Whether the server answers"),
            "/metadata": route("get", "Name and description"),
            "/schema": route("get", "Schemas of action, observation and state"),
            "/state": route("get", "State of no episode; those of /ws have one"),
            "/reset": route("post", "The tools"),
            "/step": route("post", "One action in an episode of its own"),
            "/mcp": route("post", "JSON-RPC: tools/list, tools/call, openenv/session/..."),
        },
    }
