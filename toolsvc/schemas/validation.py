"""Comparison of a value with a JSON schema in bounded time; pure.

Invariants
- Patterns take linear time. A schema with other patterns (look-around, back-references) is refused.
- `cost` counts the looks before a match. A value above MOST_LOOKS fits no schema.
- References lead only into the schema itself. Nothing is fetched.

As in JSON Schema a boolean is not an integer, and 1984.0 is an integer. For a place with a wrong
type no other violation is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import jsonschema_rs

from toolsvc.schemas.cost import Cost, Unmatchable
from toolwright.reading.json_text.json_bounds import check_values

MOST_LOOKS = 200_000
"""Less than 100 ms. An array of 190,000 whole numbers is within the limit."""
_EXPLAINED = 2000
"""Maximum number of looks for a report of places, which takes a hundred times as long as the plain
answer."""
_MOST_VIOLATIONS = 20
_SHOWN = 200
"""Number of characters of an expected value in a violation."""
_PATTERN_BYTES = 1 << 20
"""Maximum size of a compiled pattern, in bytes: `(a{1,1000}){1,1000}` needs 40 MB."""


class BadSchema(ValueError):
    """The schema is not a JSON schema, or a match has no bound. The message says why."""


class UnboundedSchema(BadSchema):
    """A JSON schema that cannot be matched in bounded time."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Violation:
    """`path`: the place, such as `$.tags[0]`. `rule`: the keyword that is violated."""

    path: str
    rule: str
    expected: str

    def as_json(self) -> dict[str, str]:
        return asdict(self)


class Matcher:
    """Compares any number of values with one schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises BadSchema."""
        self._schema = schema
        try:
            check_values(schema)  # engines must be able to parse the schema
            self._validator = jsonschema_rs.validator_for(
                dict(schema), pattern_options=_LINEAR, validate_formats=False, offline=True
            )
            self._cost = Cost(schema)
        except jsonschema_rs.ValidationError as error:
            raise _fault(error) from error
        except Unmatchable as error:
            raise UnboundedSchema(str(error)) from error
        except (RecursionError, ValueError) as error:
            raise BadSchema(f"it is nested too deeply, or no JSON: {error}") from error

    def looks(self, value: Any) -> int:
        """Number of looks at the value, counted up to MOST_LOOKS + 1."""
        return self._cost.of(value, MOST_LOOKS + 1)

    def violations(self, value: Any) -> list[Violation]:
        """The first violations, sorted by path and rule; [] if the value fits."""
        looks = self.looks(value)
        if looks > MOST_LOOKS:
            return [Violation(path="$", rule="size", expected="fewer values, less deeply nested")]
        try:
            if self._validator.is_valid(value):
                return []
            if looks > _EXPLAINED:
                return [Violation(path="$", rule="schema", expected="what the schema says")]
            errors = islice(self._validator.iter_errors(value), _EXPLAINED)
            found = {one for error in errors for one in _violations(self._schema, error)}
        except ValueError as error:
            return [Violation(path="$", rule="type", expected=f"JSON ({error})")]
        mistyped = {one.path for one in found if one.rule == "type"}
        told = sorted(one for one in found if one.rule == "type" or one.path not in mistyped)
        return told[:_MOST_VIOLATIONS]


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises BadSchema for a value that is not a JSON schema, or has no bound for a match."""
    Matcher(schema)


def violations(schema: Mapping[str, Any], value: Any) -> list[Violation]:
    """The violations of one value. The schema has passed `check_schema`."""
    return Matcher(schema).violations(value)


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with `additionalProperties: false` in every object with known properties, unless
    it sets that itself. Stricter than the standard: a call with a misspelt argument must fail."""
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs") and isinstance(value, Mapping):
            out[key] = {
                name: closed(inner) if isinstance(inner, Mapping) else inner
                for name, inner in value.items()
            }
        elif key in ("items", "additionalProperties") and isinstance(value, Mapping):
            out[key] = closed(value)
        else:
            out[key] = value
    if "properties" in out:
        out.setdefault("additionalProperties", False)
    return out


_LINEAR = jsonschema_rs.RegexOptions(size_limit=_PATTERN_BYTES)


def _fault(error: jsonschema_rs.ValidationError) -> BadSchema:
    """Raises BadSchema or UnboundedSchema for patterns and references without a bound."""
    told = f"{_path(error.instance_path)}: {_cut(error.message)}"
    if error.kind.name == "format":
        return UnboundedSchema(f"{told} that can be matched in linear time")
    return UnboundedSchema(told) if error.kind.name == "$ref" else BadSchema(told)


def _violations(
    schema: Mapping[str, Any], error: jsonschema_rs.ValidationError
) -> Iterator[Violation]:
    """The violations of one error. Those of an object's members have the member's path."""
    kind: Any = error.kind
    path, steps = _path(error.instance_path), list(error.schema_path)
    if kind.name == "required":
        yield Violation(path=f"{path}.{kind.property}", rule=kind.name, expected="a value")
    elif kind.name == "additionalProperties":
        known = _at(schema, [*steps[:-1], "properties"])
        told = "one of " + ", ".join(known) if known else "nothing"
        for name in kind.unexpected:
            yield Violation(path=f"{path}.{name}", rule=kind.name, expected=_cut(told))
    else:
        yield Violation(path=path, rule=kind.name, expected=_cut(str(_at(schema, steps))))


def _at(schema: Any, steps: Sequence[str | int]) -> Any:
    """The value at that place of the schema, or None."""
    for step in steps:
        try:
            schema = schema[step]
        except (KeyError, IndexError, TypeError):
            return None
    return schema


def _path(steps: Iterable[str | int]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."
