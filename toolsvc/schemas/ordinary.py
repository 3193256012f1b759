"""Schemas as models write them, in the subset that `lint` allows; pure.

Invariants
- Every value that fitted before fits after: annotations go, and a `format` becomes words.
- A schema that has no such form stays as it is, and `lint` names what is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

DEEPEST = 12
"""Number of levels that are rewritten. `lint` refuses deeper schemas."""

_ANNOTATIONS = (
    *("$schema", "$comment", "examples", "example", "deprecated", "readOnly", "writeOnly"),
    *("contentEncoding", "contentMediaType", "strict"),
)
"""Keywords that do not restrict values."""
_WORDS = ("description", "title", "default")


def ordinary_tools(data: Any) -> tuple[Any, Counter[str]]:
    """A tool set in OpenAI's form with ordinary schemas, and the number of changes by keyword. Data
    that are not a list of tools stay unchanged."""
    changes: Counter[str] = Counter()
    wrapped = isinstance(data, Mapping) and isinstance(data.get("tools"), list)
    tools = data["tools"] if wrapped else data
    if not isinstance(tools, list):
        return data, changes
    made = [_tool(one, changes) if isinstance(one, Mapping) else one for one in tools]
    return ({**data, "tools": made} if wrapped else made), changes


def ordinary(schema: Any, changes: Counter[str], depth: int = DEEPEST) -> Any:
    """One schema in the subset; `changes` counts keywords."""
    if not isinstance(schema, Mapping) or not depth:
        return schema
    out = {key: value for key, value in schema.items() if key not in _ANNOTATIONS}
    changes.update(key for key in schema if key in _ANNOTATIONS)
    for keyword in ("items", "additionalProperties"):
        if keyword in out:
            out[keyword] = ordinary(out[keyword], changes, depth - 1)
    if isinstance(out.get("properties"), Mapping):
        out = _members(out, changes, depth)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if isinstance(out.get(keyword), list):
            out = _alternatives(out, keyword, changes, depth)
    if isinstance(out.get("format"), str):
        said = f"{out.get('description') or ''} (format: {out.pop('format')[:100]})".strip()
        out["description"] = said
        changes["format"] += 1
    if isinstance(out.get("nullable"), bool):
        changes["nullable"] += 1
        out = _or_null(out) if out.pop("nullable") else out
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(out.get(exclusive), bool):  # as JSON Schema's draft 4 has it
            changes[exclusive] += 1
            if out.pop(exclusive) and inclusive in out:
                out[exclusive] = out.pop(inclusive)
    return out


def _tool(tool: Mapping[str, Any], changes: Counter[str]) -> dict[str, Any]:
    out = dict(tool)
    if isinstance(out.get("function"), Mapping):
        out["function"] = _tool(out["function"], changes)
    for key in ("parameters", "returns"):
        if key in out:
            out[key] = ordinary(out[key], changes)
    return out


def _members(schema: Mapping[str, Any], changes: Counter[str], depth: int) -> dict[str, Any]:
    """The schema with ordinary members. A member with `required: true` moves into the object's list
    of required names."""
    members, required = {}, []
    for name, member in schema["properties"].items():
        if isinstance(member, Mapping) and isinstance(member.get("required"), bool):
            changes["required"] += 1
            required += [name] if member["required"] else []
            member = {key: value for key, value in member.items() if key != "required"}
        members[name] = ordinary(member, changes, depth - 1)
    out = {**schema, "properties": members}
    listed = out.get("required", [])
    if required and isinstance(listed, list):
        out["required"] = [*listed, *(name for name in required if name not in listed)]
    return out


def _alternatives(
    schema: Mapping[str, Any], keyword: str, changes: Counter[str], depth: int
) -> dict[str, Any]:
    """Replaces alternatives by one schema or null, and alternatives of types by a list of types."""
    own = Counter[str]()
    given = [ordinary(one, own, depth - 1) for one in schema[keyword]]
    rest = [one for one in given if not (isinstance(one, Mapping) and one.get("type") == "null")]
    null = len(rest) < len(given) and keyword != "allOf"
    outer = {key: value for key, value in schema.items() if key != keyword}
    if len(rest) == 1 and isinstance(rest[0], Mapping):
        found = _joined(outer, rest[0])
    elif rest and keyword == "anyOf" and "type" not in outer and all(map(_type_alone, rest)):
        found = {**outer, "type": list(dict.fromkeys(one["type"] for one in rest))}
    else:
        found = None
    if found is None:
        return dict(schema)
    changes.update(own)
    changes[keyword] += 1
    return _or_null(found) if null else found


def _joined(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> dict[str, Any] | None:
    """Both schemas in one, or None if they contradict each other."""
    for key in (outer.keys() & inner.keys()) - set(_WORDS):
        if outer[key] != inner[key]:
            return None
    return {**inner, **outer}


def _type_alone(schema: Any) -> bool:
    if not isinstance(schema, Mapping) or not isinstance(schema.get("type"), str):
        return False
    return schema.keys() <= {"type", *_WORDS}


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(schema)
    types = out.get("type")
    if isinstance(types, str | list):
        named: Sequence[Any] = [types] if isinstance(types, str) else types
        out["type"] = [*named, *([] if "null" in named else ["null"])]
    if isinstance(out.get("enum"), list) and None not in out["enum"]:
        out["enum"] = [*out["enum"], None]
    if "const" in out and out["const"] is not None:
        out["enum"] = [out.pop("const"), None]
    return out
