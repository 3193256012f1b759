"""Whether a value fits a JSON schema, and where it does not; pure.

As in JSON Schema a boolean is no integer and 1984.0 is one. A wrong type is the only fault that is
told of its place. References go to the schema's own `$defs` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry


class BadSchema(ValueError):
    """The schema itself is none; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Violation:
    """`path` as in `$.tags[0]`; `rule` is the keyword of the schema that does not hold."""

    path: str
    rule: str
    expected: str

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def check_schema(schema: Mapping[str, Any]) -> None:
    """BadSchema where it is no JSON schema."""
    try:
        Draft202012Validator.check_schema(schema)
        references = list(_references(schema))
    except SchemaError as error:
        raise BadSchema(f"{error.json_path}: {error.message}") from error
    except RecursionError as error:
        raise BadSchema("it is nested too deeply") from error
    for reference in references:
        name = reference.removeprefix("#/$defs/")
        if name == reference or name not in schema.get("$defs", {}):
            raise BadSchema(f"{reference!r} is none of its $defs")


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


def violations(schema: Mapping[str, Any], value: Any) -> list[Violation]:
    """Sorted by path and rule; [] where the value fits. The schema passed `check_schema`."""
    errors = Draft202012Validator(schema, registry=Registry()).iter_errors(value)
    found = {one for error in errors for one in _violations(error)}
    mistyped = {one.path for one in found if one.rule == "type"}
    return sorted(one for one in found if one.rule == "type" or one.path not in mistyped)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for inner in schema.values():
            yield from _references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _references(inner)


def _violations(error: ValidationError) -> Iterator[Violation]:
    """Those of an object's members are told at the member's own path."""
    rule, value = str(error.validator), cast("Any", error.instance)
    expected = cast("Any", error.validator_value)
    if rule == "required":
        names = [name for name in expected if name not in value]
        told = "a value"
    elif rule == "additionalProperties" and expected is False:
        known = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
        names = [name for name in value if name not in known]
        told = "one of " + ", ".join(known) if known else "nothing"
    else:
        yield Violation(path=error.json_path, rule=rule, expected=_told(expected))
        return
    for name in names:
        yield Violation(path=f"{error.json_path}.{name}", rule=rule, expected=told)


def _told(expected: Any) -> str:
    text = str(expected)
    return text if len(text) <= 200 else f"{text[:200]} ..."
