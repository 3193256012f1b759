"""A JSON Schema that came through protobuf, in an order that is always the same; pure.

A Struct keeps no order, and hands its members out in another one in each process. A schema that is
written into prompts must read the same everywhere, or what was rendered for a warm-up is not what
rollouts see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_FIRST = ("type", "title", "description", "enum", "const", "items", "properties", "required")
"""Keywords in the order in which schemas are commonly written; all others follow by name."""
_NAMED = ("properties", "$defs", "definitions", "patternProperties")
"""Keywords whose members are schemas under names of their own."""


def in_order(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema. Required properties come first, as `required` lists them (lists keep their
    order, so that is the order of the author), the others by name."""
    required = schema.get("required")
    names = list(required) if isinstance(required, list | tuple) else []
    out: dict[str, Any] = {}
    for key in sorted(schema, key=lambda key: (_place(_FIRST, key), key)):
        value = schema[key]
        if key in _NAMED and isinstance(value, Mapping):
            members = sorted(value, key=lambda name: (_place(names, name), name))
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
    required = ordered.get("required")
    needed = required if isinstance(required, list) else list(properties)
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


def _place(order: Sequence[Any], name: str) -> int:
    return order.index(name) if name in order else len(order)
