"""Nulls that a table put in place of missing keys. Pure.

A column of Parquet or Arrow gives every row the keys of all rows: a call of one tool gets the
arguments of all others, each null, and a schema the keywords of all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_VALUES = ("default", "const", "enum", "examples")
"""Keywords that hold values, and no schemas."""
_NAMED = ("properties", "$defs", "definitions", "patternProperties")
"""Keywords whose members are schemas under names of their own."""
_SAYS_TYPE = ("type", "anyOf", "oneOf", "allOf", "enum", "const", "$ref")


def schema_without_nulls(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema without keywords and properties that are null. `default` and `const` stay null
    where the schema allows null.

    A schema in which they alone are null did not come from a table: it stays as it is.
    """
    return _without_nulls(schema) if _is_filled(schema) else schema


def _is_filled(schema: Mapping[str, Any]) -> bool:
    """Whether a keyword or a property is null that no author would write as null."""
    for key, value in schema.items():
        if key in _VALUES:
            continue
        if value is None:
            return True
        members = value.values() if isinstance(value, Mapping) and key in _NAMED else [value]
        for one in members:
            if one is None or any(map(_is_filled, _schemas(one))):
                return True
    return False


def _schemas(value: Any) -> list[Mapping[str, Any]]:
    """A schema, or those in a list."""
    found = value if isinstance(value, list | tuple) else [value]
    return [one for one in found if isinstance(one, Mapping)]


def _without_nulls(schema: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if value is None:
            if key in ("default", "const") and _allows_null(schema):
                out[key] = None
        elif key in _NAMED and isinstance(value, Mapping):
            out[key] = {name: _value(one) for name, one in value.items() if one is not None}
        elif key in _VALUES:
            out[key] = value
        else:
            out[key] = _value(value)
    return out


def arguments_without_nulls(
    arguments: Mapping[str, Any], schema: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments without nulls that the tool could not have been given: of a property that its
    schema does not have, or that may be left out and may not be null."""
    return _object(arguments, schema, free=False)


def _object(found: Mapping[str, Any], schema: Mapping[str, Any], *, free: bool) -> dict[str, Any]:
    """free: a schema without properties describes an object of any keys."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        if free:
            return dict(found)
        properties = {}
    required = schema.get("required")
    required = required if isinstance(required, list | tuple) else ()
    return {
        name: _argument(value, properties.get(name))
        for name, value in found.items()
        if value is not None
        or (name in properties and (name in required or _allows_null(properties[name])))
    }


def _argument(value: Any, schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, Mapping):
        return _object(value, schema, free=True)
    if isinstance(value, list):
        return [_argument(one, schema.get("items")) for one in value]
    return value


def _allows_null(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return True
    if not any(schema.get(key) is not None for key in _SAYS_TYPE) or "$ref" in schema:
        return True
    kind = schema.get("type")
    if kind == "null" or (isinstance(kind, list | tuple) and "null" in kind):
        return True
    if schema.get("nullable") is True:
        return True
    enum = schema.get("enum")
    if isinstance(enum, list | tuple) and None in enum:
        return True
    return any(
        isinstance(choices, list | tuple) and any(map(_is_null, choices))
        for choices in (schema.get("anyOf"), schema.get("oneOf"))
    )


def _is_null(schema: Any) -> bool:
    """One level alone: choices inside of choices are the author's puzzle, and may be deep."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return kind == "null" or (isinstance(kind, list | tuple) and "null" in kind)


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _without_nulls(value)
    return [_value(one) for one in value] if isinstance(value, list | tuple) else value
