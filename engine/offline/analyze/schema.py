"""Identity and complexity of a tool, from its schema. Pure.

Schemas are untrusted: they are walked once, without recursion.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_CHECKS = frozenset(
    {"enum", "const", "pattern", "format", "minLength", "maxLength", "minimum", "maximum"}
    | {"exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems"}
)
"""Keywords that bound a value. `type` and `required` are left out: nearly every parameter has
them, and a tool with one parameter would never be simple."""
_ONE_OF = ("anyOf", "oneOf", "allOf")
_NAMED = ("properties", "patternProperties")
_MEMBERS = ("items", "prefixItems", "additionalProperties", "additionalItems")
MOST_REFERENCE_PARTS = 40
"""Most parts of a reference that are followed."""


class Size(StrEnum):
    """How complex a tool is (MTR names the classes and no criterion)."""

    SIMPLE = "simple"
    """A score of at most 2."""
    MODERATE = "moderate"
    """3 to 5."""
    COMPLEX = "complex"
    """More."""
    UNKNOWN = "unknown"
    """Its schema is not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complexity:
    """Counts over a schema."""

    parameters: int
    """Named parameters at any depth."""
    levels: int
    """Depth of nested objects and lists below the arguments."""
    validators: int
    """Bounds of values."""

    @property
    def score(self) -> int:
        return self.parameters + self.levels + self.validators

    @property
    def size(self) -> Size:
        if self.score <= 2:
            return Size.SIMPLE
        return Size.MODERATE if self.score <= 5 else Size.COMPLEX


def complexity(schema: Mapping[str, Any]) -> Complexity:
    """Complexity of the arguments' schema, in linear time.

    A reference into the schema itself (`#/$defs/Film`) is followed once; others are ignored.
    """
    parameters = deepest = validators = 0
    waiting: list[tuple[Any, int]] = [(schema, 0)]
    followed = {id(schema)}
    while waiting:
        one, depth = waiting.pop()
        if not isinstance(one, Mapping):
            continue
        validators += sum(key in _CHECKS for key in one)
        reference = one.get("$ref")
        if isinstance(reference, str):
            target = _at(schema, reference)
            if id(target) not in followed:  # the object: a place can be written in many ways
                followed.add(id(target))
                waiting.append((target, depth))
        # Neither the arguments themselves nor an empty object or list count as a level.
        inside: list[Any] = []
        for key in _NAMED:
            if isinstance(named := one.get(key), Mapping):
                parameters += len(named)
                inside += named.values()
        for key in _MEMBERS:
            if isinstance(members := one.get(key), list):
                inside += members
            elif isinstance(members, Mapping):
                inside.append(members)
        if inside:
            deepest = max(deepest, depth)
        waiting += [(inner, depth + 1) for inner in inside]
        for key in _ONE_OF:
            choices = one.get(key)
            waiting += [(inner, depth) for inner in choices] if isinstance(choices, list) else []
    return Complexity(parameters=parameters, levels=deepest, validators=validators)


def _at(schema: Mapping[str, Any], reference: str) -> Any:
    """The target of a local reference (JSON Pointer, RFC 6901); None if it is missing."""
    start, *parts = reference.split("/", MOST_REFERENCE_PARTS)
    if start != "#":
        return None
    found: Any = schema
    for part in parts:
        if isinstance(found, Mapping):
            found = found.get(part.replace("~1", "/").replace("~0", "~"))
        elif isinstance(found, list) and part.isdecimal() and len(part) < 6:
            found = found[int(part)] if int(part) < len(found) else None
        else:
            return None
    return found


def identity(name: str, schema: Mapping[str, Any] | None) -> bytes:
    """A hash of a tool's name and schema. A tool without a recorded schema is a tool of its own."""
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=16)
    if schema is not None:
        digest.update(b"\0" + json.dumps(schema, sort_keys=True, default=str).encode())
    return digest.digest()
