"""Faults of a tool set that a model has made for a policy; pure.

This module does not know the task's answer, so it cannot find leaks. The maker
(`sources.simulated.maker`) does not get the answer either, so only its own knowledge can leak.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from toolsvc.schemas.functions import FunctionTool
from toolsvc.schemas.ordinary import DEEPEST
from toolsvc.schemas.validation import Matcher

MOST_TOOLS = 8
MOST_CHARACTERS = 8000
"""Maximum length of one tool's JSON, which is a part of every prompt."""
LONGEST_PATTERN = 200

MOST_SCHEMAS = 200
"""Maximum number of schemas in one schema. Other work waits while they are compiled."""

_KEYWORDS = frozenset(
    (
        *("type", "enum", "const", "minLength", "maxLength", "minimum", "maximum"),
        *("exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems", "items", "required", "properties", "additionalProperties"),
        *("description", "title", "default"),
    )
)
"""Keywords with one look at each value: no references, alternatives or patterns."""


def lint(tools: Sequence[FunctionTool], taken: Collection[str]) -> list[str]:
    """The faults, one sentence each. `taken`: names of tools that the session has."""
    faults = []
    if len(tools) > MOST_TOOLS:
        faults.append(f"{len(tools)} tools, at most {MOST_TOOLS} are allowed")
    for tool in tools:
        faults += [f"{tool.name}: {fault}" for fault in _faults(tool, taken)]
    return faults


def _faults(tool: FunctionTool, taken: Collection[str]) -> Iterator[str]:
    if tool.name in taken:
        yield "another tool has this name"
    if not tool.description.strip():
        yield "it has no description"
    if len(json.dumps(tool.as_json(), ensure_ascii=False)) > MOST_CHARACTERS:
        yield f"it has more than {MOST_CHARACTERS} characters"
    for place, schema in (("parameters", tool.parameters), ("returns", tool.returns or {})):
        yield from schema_faults(place, schema, patterns=True)
        for where, inner, _ in islice(_schemas(place, schema, DEEPEST), MOST_SCHEMAS):
            yield from _dead(where, inner)


def schema_faults(place: str, schema: Any, *, patterns: bool) -> Iterator[str]:
    """The faults of a schema that a model wrote, one sentence each. `patterns`: the schema may have
    patterns, because the policy did not write it."""
    found = list(islice(_schemas(place, schema, DEEPEST), MOST_SCHEMAS + 1))
    if len(found) > MOST_SCHEMAS:
        yield f"{place} holds more than {MOST_SCHEMAS} schemas"
        return
    for where, inner, depth in found:
        if not depth:
            yield f"{where} is nested too deeply"
            continue
        for keyword in sorted(inner.keys() - _KEYWORDS):
            if keyword != "pattern" or not patterns:
                yield f"{where} uses {keyword!r}, which is not supported"
        pattern = inner.get("pattern", "")
        if isinstance(pattern, str) and len(pattern) > LONGEST_PATTERN:
            yield f"{where}: pattern has more than {LONGEST_PATTERN} characters"


def _dead(where: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """The faults that exclude every value, so that every call would be refused. The schema has
    passed `check_schema`."""
    properties, required = schema.get("properties"), schema.get("required", ())
    if isinstance(properties, Mapping) and not schema.get("additionalProperties"):
        for name in sorted(set(required) - properties.keys()):
            yield f"{where} requires {name!r}, which is not one of its properties"
    if "type" in schema and "enum" in schema:
        of_type = Matcher({"type": schema["type"]})
        if all(of_type.violations(value) for value in schema["enum"]):
            yield f"{where}: no value of its enum is of its type"


def _schemas(place: str, schema: Any, depth: int) -> Iterator[tuple[str, Mapping[str, Any], int]]:
    """The schema and its inner schemas, each with its place and the number of levels that may
    follow."""
    if not isinstance(schema, Mapping):
        return
    yield place, schema, depth
    if not depth:
        return
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        yield from _schemas(f"{place}.{name}", inner, depth - 1)
    for keyword in ("items", "additionalProperties"):
        yield from _schemas(f"{place}.{keyword}", schema.get(keyword), depth - 1)
