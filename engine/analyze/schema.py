"""What a schema tells of a tool: whether two are the same, and how complex it is. Pure.

Schemas come from policies and strangers: they are walked once, without recursion.
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
"""Keywords that bound a value. `type` and `required` are none of them: nearly every parameter has
those, and a tool with one parameter would never be simple."""
_ONE_OF = ("anyOf", "oneOf", "allOf")


class Size(StrEnum):
    """How complex a tool is (spec 4.8: the paper names the classes and no criterion)."""

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
    """parameters: named ones at any depth. levels: objects and lists inside of each other below the
    arguments. validators: bounds of values."""

    parameters: int
    levels: int
    validators: int

    @property
    def score(self) -> int:
        return self.parameters + self.levels + self.validators

    @property
    def size(self) -> Size:
        if self.score <= 2:
            return Size.SIMPLE
        return Size.MODERATE if self.score <= 5 else Size.COMPLEX


def complexity(schema: Mapping[str, Any]) -> Complexity:
    """Of the arguments' schema. References ($ref) are not followed."""
    parameters = deepest = validators = 0
    waiting: list[tuple[Any, int]] = [(schema, 0)]
    while waiting:
        one, depth = waiting.pop()
        if not isinstance(one, Mapping):
            continue
        validators += sum(key in _CHECKS for key in one)
        properties, items = one.get("properties"), one.get("items")
        # The arguments themselves are no level; an object or a list without members is none either.
        inside: list[Any] = []
        if isinstance(properties, Mapping):
            parameters += len(properties)
            inside += properties.values()
        if isinstance(items, list):
            inside += items
        elif isinstance(items, Mapping):
            inside.append(items)
        if inside:
            deepest = max(deepest, depth)
        waiting += [(inner, depth + 1) for inner in inside]
        for key in _ONE_OF:
            choices = one.get(key)
            waiting += [(inner, depth) for inner in choices] if isinstance(choices, list) else []
    return Complexity(parameters=parameters, levels=deepest, validators=validators)


def identity(name: str, schema: Mapping[str, Any] | None) -> bytes:
    """Equal for invocations of one tool: its name and the hash of its schema (spec 4.8). A tool
    whose schema is not recorded is its name alone, and is no tool of that name with a schema."""
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=16)
    if schema is not None:
        digest.update(b"\0" + json.dumps(schema, sort_keys=True, default=str).encode())
    return digest.digest()
