"""The form of a tool set as a JSON Schema, for an endpoint that enforces a schema.

It allows fewer tool sets than the check does. A tool's arguments, and its output, are an object
whose members are values and lists of values, with no objects inside of them. Every member is
required. The form has no `required`, since no grammar keeps such a list to the names that were
written before it: `completed` adds it. What fits may still be refused: a name that is there twice,
say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolsvc.schemas.functions import NAME
from toolsvc.schemas.lint import MOST_TOOLS

MOST_CHARACTERS = 300
"""Longest description or value: a weak model would go on until its tokens are spent."""
MOST_MEMBERS = 20
"""Most members of an object, or of a list of values, for the same reason."""
KEYWORDS = "type, description, enum, items and properties"
"""Keywords of the schemas of a tool that fits, for the model's prompt."""


def _object(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_DESCRIPTION: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": MOST_CHARACTERS}
_NUMBERS = ("number", "integer", "boolean")
_ENUM: dict[str, Any] = {
    "type": "array",
    "items": {"type": "string", "maxLength": MOST_CHARACTERS},
    "minItems": 1,
    "maxItems": MOST_MEMBERS,
}
_ITEMS = _object({"type": {"enum": ["string", *_NUMBERS]}})


def _member(types: Sequence[str], more: Mapping[str, Any], *optional: str) -> dict[str, Any]:
    kind = {"enum": list(types)}
    return _object({"type": kind, "description": _DESCRIPTION, **more}, *optional)


_MEMBER: dict[str, Any] = {
    "anyOf": [
        _member(["string"], {"enum": _ENUM}, "enum"),
        _member(_NUMBERS, {}),
        _member(["array"], {"items": _ITEMS}),
    ]
}
_SCHEMA = _object(
    {
        "type": {"enum": ["object"]},
        "properties": {
            "type": "object",
            "additionalProperties": _MEMBER,
            "maxProperties": MOST_MEMBERS,
        },
    }
)
_FUNCTION = _object(
    {
        "name": {"type": "string", "pattern": NAME},
        "description": _DESCRIPTION,
        "parameters": _SCHEMA,
    }
)
FORM: dict[str, Any] = {
    "type": "array",
    "items": _object({"type": {"enum": ["function"]}, "function": _FUNCTION, "returns": _SCHEMA}),
    "minItems": 1,
    "maxItems": MOST_TOOLS,
}


def completed(tools: Any) -> Any:
    """A tool set, whose schemas require all of their members where they do not say which. What is
    no list of tools with a `function` is left as it is."""
    if not isinstance(tools, list):
        return tools
    return [_completed_tool(tool) for tool in tools]


def _completed_tool(tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        return tool
    completed_function = _with_required(function, "parameters")
    return _with_required({**tool, "function": completed_function}, "returns")


def _with_required(owner: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    schema = owner.get(key)
    members = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(members, Mapping):
        return owner
    return {**owner, key: {"required": list(members), **schema}}
