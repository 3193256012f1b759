"""The cost of matching a value against a JSON schema, counted before the match; pure.

The unit is a *look*: one schema, with the entries of its lists, applied to one value. A schema with
two recursive branches doubles the looks at each level, so a few nested lists could take hours.
`Cost.of` counts the looks in one pass over the value.

Invariant: the true number of looks is not above `Cost.of`, unless that is `most`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal
from urllib.parse import unquote

_HERE = (
    *("allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
    *("dependentSchemas", "dependencies"),
)
"""Keywords whose schemas apply to the value itself."""
_ITEMS = ("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems")
_MEMBERS = (
    *("additionalProperties", "patternProperties", "propertyNames", "unevaluatedProperties"),
)
_ELSEWHERE = ("$dynamicRef", "$recursiveRef")
_TWICE = ("unevaluatedItems", "unevaluatedProperties")
"""Keywords for which a validator applies the schemas of `_HERE` a second time."""
_LISTS = ("enum", "required", "patternProperties", "dependentRequired")
_CHARACTERS = 256
"""Number of characters of a text that count as one look."""
_ENDLESS = 1 << 40
_LARGE = (str, Mapping, list, tuple)

_Kind = Literal["list", "object"]


class Unmatchable(ValueError):
    """The cost of the schema is unknown. The message says why."""


class Cost:
    """The cost of one schema, which a validator has accepted."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises Unmatchable if the schema refers to another document, or to itself at one
        level."""
        self._schema = schema
        self._known: dict[tuple[int, _Kind, int], int] = {}
        self._at_depth: list[int] = []
        for inner in self._reachable():
            self._looks(inner, "list", 0)

    def of(self, value: Any, most: int) -> int:
        """Number of looks at the value, counted up to `most`."""
        looks = self._looks_at(0)
        waiting = [(value, 0)]
        while waiting and looks < most:
            one, depth = waiting.pop()
            inside: Collection[Any] = ()
            if isinstance(one, str):
                looks += len(one) // _CHARACTERS
            elif isinstance(one, Mapping):
                looks += sum(map(len, one)) // _CHARACTERS
                inside = one.values()
            elif isinstance(one, list | tuple):
                inside = one
            if inside:
                looks += len(inside) * self._looks_at(depth + 1)
            if looks < most:
                waiting += [(inner, depth + 1) for inner in inside if isinstance(inner, _LARGE)]
        return min(looks, most)

    def _reachable(self) -> Iterator[Mapping[str, Any]]:
        """All schemas that may apply to a part of a value."""
        waiting: list[Any] = [self._schema]
        seen: set[int] = set()
        while waiting:
            schema = waiting.pop()
            if isinstance(schema, Mapping) and id(schema) not in seen:
                seen.add(id(schema))
                yield schema
                waiting += self._applied_here(schema)
                waiting += _schemas(schema, (*_ITEMS, *_MEMBERS))
                waiting += schema.get("properties", {}).values()

    def _looks_at(self, depth: int) -> int:
        """Number of looks at one value at this depth, by all schemas that may apply to it. A value
        without a schema is one look."""
        while depth >= len(self._at_depth):
            if self._at_depth and self._at_depth[-1] >= _ENDLESS:
                return _ENDLESS
            self._at_depth.append(max(1, self._deepest(self._schema, len(self._at_depth))))
        return self._at_depth[depth]

    def _deepest(self, schema: Any, depth: int) -> int:
        return max(self._looks(schema, "list", depth), self._looks(schema, "object", depth))

    def _looks(self, schema: Any, kind: _Kind, depth: int) -> int:
        """Number of looks by the schema and its inner schemas, at a value `depth` levels below a
        value of this kind to which the schema applies."""
        if not isinstance(schema, Mapping):
            return 0
        key = (id(schema), kind, depth)
        found = self._known.get(key)
        if found is None:
            self._known[key] = -1
            found = self._known[key] = min(_ENDLESS, self._count(schema, kind, depth))
        if found < 0:
            raise Unmatchable("it refers to itself without going deeper")
        return found

    def _count(self, schema: Mapping[str, Any], kind: _Kind, depth: int) -> int:
        here = sum(self._looks(inner, kind, depth) for inner in self._applied_here(schema))
        if any(keyword in schema for keyword in _TWICE):
            here *= 2
        if not depth:
            return here + 1 + sum(len(schema[name]) for name in _LISTS if name in schema)
        below = _ITEMS if kind == "list" else _MEMBERS
        here += sum(self._deepest(one, depth - 1) for one in _schemas(schema, below))
        if kind == "object":  # at most one known property has the member's name
            known = schema.get("properties", {}).values()
            here += max((self._deepest(one, depth - 1) for one in known), default=0)
        return here

    def _applied_here(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        yield from _schemas(schema, _HERE)
        if any(keyword in schema for keyword in _ELSEWHERE):
            raise Unmatchable("it has a dynamic reference")
        if "$ref" in schema:
            yield self._at(schema["$ref"])

    def _at(self, reference: str) -> Any:
        """The schema at a reference such as `#/$defs/name`."""
        found: Any = self._schema
        fragment = unquote(reference.removeprefix("#"))
        if not reference.startswith("#") or fragment[:1] not in ("", "/"):
            raise Unmatchable(f"{reference!r} is not a reference into the schema")
        for step in fragment.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(name)] if isinstance(found, list) else found[name]
            except (KeyError, IndexError, ValueError, TypeError) as error:
                raise Unmatchable(f"{reference!r} leads nowhere") from error
        return found


def _schemas(schema: Mapping[str, Any], keywords: tuple[str, ...]) -> Iterator[Any]:
    """Schemas of the keywords. A keyword has one schema, a list, or schemas by name."""
    for keyword in keywords:
        value = schema.get(keyword)
        if isinstance(value, list):
            yield from value
        elif keyword in ("dependentSchemas", "dependencies", "patternProperties"):
            yield from (value or {}).values()
        elif value is not None:
            yield value
