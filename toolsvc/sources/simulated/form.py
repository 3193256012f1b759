"""The form of a tool set as a JSON Schema, for an endpoint that keeps to one.

It is narrower than what a tool set may be: arguments and outputs are values and lists of values,
without objects inside of them. What fits may still be refused: a name that is there twice, say.
"""

from __future__ import annotations

from typing import Any

from toolsvc.schemas.functions import NAME
from toolsvc.schemas.lint import MOST_TOOLS

_SAID: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 300}
_SCALARS = ("string", "number", "integer", "boolean")


def _object(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_VALUE = _object(
    {
        "type": {"enum": [*_SCALARS, "array"]},
        "description": _SAID,
        "enum": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 20},
        "items": _object({"type": {"enum": list(_SCALARS)}}),
    },
    "enum",
    "items",
)
_VALUES = _object(
    {
        "type": {"enum": ["object"]},
        "properties": {"type": "object", "additionalProperties": _VALUE},
        "required": {"type": "array", "items": {"type": "string"}, "maxItems": 20},
    },
)
_FUNCTION = _object(
    {
        "name": {"type": "string", "pattern": NAME},
        "description": _SAID,
        "parameters": _VALUES,
    }
)
FORM: dict[str, Any] = {
    "type": "array",
    "items": _object({"type": {"enum": ["function"]}, "function": _FUNCTION, "returns": _VALUES}),
    "minItems": 1,
    "maxItems": MOST_TOOLS,
}
