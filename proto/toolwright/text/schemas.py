"""A JSON Schema that came through protobuf, in an order that is always the same; pure.

A Struct keeps no order, and each process iterates it in another one. A schema in a prompt must read
the same everywhere. Else the prompts of a warm-up differ from those of rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FIRST = ("type", "title", "description", "enum", "const", "items", "properties", "required")
_PLACES = {keyword: place for place, keyword in enumerate(_FIRST)}
"""Keywords in the order in which schemas are commonly written; all others follow by name."""
_NAMED = ("properties", "$defs", "definitions", "patternProperties")
"""Keywords whose members are schemas under names of their own."""


def in_order(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema. Required properties come first, in the author's order, which the list
    `required` keeps. The others follow by name."""
    places = _required(schema)
    out: dict[str, Any] = {}
    for key in sorted(schema, key=lambda key: (_PLACES.get(key, len(_FIRST)), key)):
        value = schema[key]
        if key in _NAMED and isinstance(value, Mapping):
            members = sorted(value, key=lambda name: (places.get(name, len(places)), name))
            out[key] = {name: _value(value[name]) for name in members}
        else:
            out[key] = _value(value)
    return out


def signature(schema: Mapping[str, Any]) -> str:
    """The arguments of an object's schema as a prompt lists them: `n: integer, unit: string`; an
    argument that may be left out ends in `?`."""
    ordered = in_order(schema)
    properties = ordered.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    needed = _required(ordered) if isinstance(ordered.get("required"), list) else properties
    return ", ".join(
        f"{name}{'' if name in needed else '?'}: {_type(of)}" for name, of in properties.items()
    )


def _type(schema: Any) -> str:
    named = schema.get("type") if isinstance(schema, Mapping) else None
    return named if isinstance(named, str) else "any"


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return in_order(value)
    return [_value(one) for one in value] if isinstance(value, list | tuple) else value


def _required(schema: Mapping[str, Any]) -> dict[str, int]:
    """The place of each name in `required`. A hostile list may be as long as a message, so a name
    must be found in one step."""
    required = schema.get("required")
    if not isinstance(required, list | tuple):
        return {}
    names = dict.fromkeys(name for name in required if isinstance(name, str))
    return {name: place for place, name in enumerate(names)}
