"""Whether a tool set that a model has made may be given to a policy; pure.

The answer of the task is not known here, so nothing can be told of its leaking: what does not reach
the maker (`maker`) cannot leak but by its own knowledge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from toolsvc.schemas.functions import FunctionTool

MOST_TOOLS = 8
MOST_CHARACTERS = 8000
"""Of one tool's JSON: it is a part of every prompt."""
LONGEST_PATTERN = 200
DEEPEST = 12

_KEYWORDS = frozenset(
    (
        *("type", "enum", "const", "pattern", "minLength", "maxLength", "minimum", "maximum"),
        *("minItems", "maxItems", "items", "required", "properties", "additionalProperties"),
        *("description", "title", "default"),
    )
)
_REPEATED_GROUP = re.compile(r"\)[*+{]")
"""`(a+)+` and `(a|aa)*` take for ever on the right text, which the policy could write."""
_UNBOUNDED = re.compile(r"(?<!\\)[*+]|\{\d*,\}")
MOST_UNBOUNDED = 2
"""Each multiplies the time by the length of the text."""


def lint(tools: Sequence[FunctionTool], taken: Collection[str]) -> list[str]:
    """What is wrong, a sentence each; `taken` are names that the session has."""
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
        yield from schema_faults(place, schema)


def schema_faults(place: str, schema: Any, depth: int = DEEPEST) -> Iterator[str]:
    """What is wrong with a schema that a model wrote, a sentence each."""
    if not isinstance(schema, Mapping):
        return
    if not depth:
        yield f"{place} is nested too deeply"
        return
    for keyword in sorted(schema.keys() - _KEYWORDS):
        yield f"{place} uses {keyword!r}, which is not supported"
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and (fault := _pattern_fault(pattern)):
        yield f"{place}: pattern {pattern[:60]!r} {fault}"
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        yield from schema_faults(f"{place}.{name}", inner, depth - 1)
    for keyword in ("items", "additionalProperties"):
        yield from schema_faults(f"{place}.{keyword}", schema.get(keyword), depth - 1)


def _pattern_fault(pattern: str) -> str:
    if len(pattern) > LONGEST_PATTERN:
        return f"has more than {LONGEST_PATTERN} characters"
    if _REPEATED_GROUP.search(pattern):
        return "repeats a group"
    if (unbounded := len(_UNBOUNDED.findall(pattern))) > MOST_UNBOUNDED:
        return f"repeats without a bound {unbounded} times, at most {MOST_UNBOUNDED} are allowed"
    try:
        re.compile(pattern)
    except re.error as error:
        return f"is no regular expression: {error}"
    return ""
