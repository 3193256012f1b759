"""Whether a value fits a JSON schema, and where it does not, in bounded time; pure.

Invariants
- Patterns are matched by an engine that takes linear time. A schema with one that this engine does
  not know (look-around, back-references) cannot be had.
- What a value may cost is counted before it is matched (`cost`): one that costs more than
  MOST_LOOKS fits no schema.
- References go to the schema itself and nowhere else; nothing is fetched.

As in JSON Schema a boolean is no integer and 1984.0 is one. A wrong type is the only fault that is
told of its place.
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
"""Below 100 ms. An array of 190,000 whole numbers is below."""
_EXPLAINED = 2000
"""Looks up to which it is told where a value does not fit: finding that out takes a hundred times
as long as finding out that it does not."""
_MOST_VIOLATIONS = 20
_SHOWN = 200
"""Characters of what a schema expects."""
_PATTERN_BYTES = 1 << 20
"""Of one compiled pattern: `(a{1,1000}){1,1000}` wants 40 MB."""


class BadSchema(ValueError):
    """The schema itself is none, or matching it has no bound; the message says why."""


class UnboundedSchema(BadSchema):
    """It is a schema, but nobody can match it in bounded time."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Violation:
    """`path` as in `$.tags[0]`; `rule` is the keyword of the schema that does not hold."""

    path: str
    rule: str
    expected: str

    def as_json(self) -> dict[str, str]:
        return asdict(self)


class Matcher:
    """Of one schema, for any number of values."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """BadSchema."""
        self._schema = schema
        try:
            check_values(schema)  # it is sent to engines, which must be able to read it
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
        """What the value costs, counted up to one more than MOST_LOOKS."""
        return self._cost.of(value, MOST_LOOKS + 1)

    def violations(self, value: Any) -> list[Violation]:
        """Sorted by path and rule, the first of them; [] where the value fits."""
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
    """BadSchema where it is no JSON schema, or one that cannot be matched in bounded time."""
    Matcher(schema)


def violations(schema: Mapping[str, Any], value: Any) -> list[Violation]:
    """Of one value alone. The schema passed `check_schema`."""
    return Matcher(schema).violations(value)


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with `additionalProperties: false` in every object of known properties that says
    nothing of others. Stricter than the standard: a call with a misspelt argument should fail."""
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
    """Whether it is no schema, or one whose patterns or references ask for too much."""
    told = f"{_path(error.instance_path)}: {_cut(error.message)}"
    if error.kind.name == "format":
        return UnboundedSchema(f"{told} that can be matched in linear time")
    return UnboundedSchema(told) if error.kind.name == "$ref" else BadSchema(told)


def _violations(
    schema: Mapping[str, Any], error: jsonschema_rs.ValidationError
) -> Iterator[Violation]:
    """Those of an object's members are told at the member's own path."""
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
    """What stands at that place of the schema, None where nothing does."""
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
