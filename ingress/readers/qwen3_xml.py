"""<tool_call><function=NAME><parameter=KEY>value</parameter>...</function></tool_call>. Pure.

Qwen3-Coder and Qwen3.5 write calls so. A value is text unless the tool's schema has another type
for it; then it must be JSON, or Python's True, False or None. One line break at each side of a
value belongs to the form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ingress.readers.blocks import BlockReader
from ingress.readers.types import NotACall, Tools, read_call, schema_of
from ingress.types import IllFormed, Piece
from toolwright.reading.action_ends import Tags
from toolwright.reading.json_text.json_bounds import OutOfBounds, read_json

TAGS = Tags("<tool_call>", "</tool_call>")
_FUNCTION, _PARAMETER = Tags("<function=", "</function>"), Tags("<parameter=", "</parameter>")
_NAME = re.compile(r"[^<>\s]{1,256}")


class Qwen3XmlReader(BlockReader):
    """Reader of one completion. tools: their schemas type the values."""

    def __init__(self, tools: Tools = ()) -> None:
        super().__init__(TAGS)
        self._tools = tools

    def _whole(self, block: str) -> list[Piece]:
        body = block.removeprefix(TAGS.open)
        if not body.endswith(TAGS.close):
            return [IllFormed(text=block, reason="the completion ends inside a tool call")]
        try:
            name, arguments = self._call(body.removesuffix(TAGS.close).strip())
        except NotACall as error:
            return [IllFormed(text=block, reason=str(error))]
        return [read_call(name, arguments)]

    def _call(self, body: str) -> tuple[str, dict[str, Any]]:
        """Name and arguments. Raises NotACall for text that is not a call."""
        if not (body.startswith(_FUNCTION.open) and body.endswith(_FUNCTION.close)):
            raise NotACall(f"a tool call is {_FUNCTION.open}NAME>...{_FUNCTION.close}")
        head, found, rest = body[len(_FUNCTION.open) :].partition(">")
        name = _named(head, found, "function")
        rest = rest.removesuffix(_FUNCTION.close)
        properties = schema_of(self._tools, name).get("properties")
        arguments: dict[str, Any] = {}
        at = 0
        while (opened := rest.find(_PARAMETER.open, at)) >= 0:
            if rest[at:opened].strip():
                raise NotACall(f"text outside of {_PARAMETER.open}KEY>...{_PARAMETER.close}")
            begin = rest.find(">", opened)
            end = rest.find(_PARAMETER.close, begin)
            if begin < 0 or end < 0:
                raise NotACall(f"{_PARAMETER.open} without {_PARAMETER.close}")
            key = _named(rest[opened + len(_PARAMETER.open) : begin], ">", "parameter")
            if key in arguments:
                raise NotACall(f"the parameter {key} stands twice")
            arguments[key] = _value(key, _unframed(rest[begin + 1 : end]), properties)
            at = end + len(_PARAMETER.close)
        if rest[at:].strip():
            raise NotACall(f"text outside of {_PARAMETER.open}KEY>...{_PARAMETER.close}")
        return name, arguments


def _named(text: str, found: str, kind: str) -> str:
    if not found or _NAME.fullmatch(text) is None:
        raise NotACall(f"a {kind} has no name")
    return text


def _unframed(value: str) -> str:
    return value.removeprefix("\n").removesuffix("\n")


def _value(key: str, text: str, properties: object) -> Any:
    """A value by its type in the schema. Raises NotACall if it must be JSON and is not."""
    kinds = _kinds(properties.get(key) if isinstance(properties, Mapping) else None)
    plain = _PYTHON.get(text, text)
    if plain == "null" and "null" in kinds:
        return None
    if not kinds or "string" in kinds:
        return text
    try:
        return read_json(plain)
    except OutOfBounds as error:
        raise NotACall(f"the parameter {key} is not {' or '.join(kinds)}: {error}") from error


_PYTHON = {"True": "true", "False": "false", "None": "null"}
"""Values that Qwen3.5's template writes as Python does, so the model does as well."""


def _kinds(schema: object) -> list[str]:
    """The types of a value. pydantic writes an optional one as `anyOf`."""
    if not isinstance(schema, Mapping):
        return []
    found: list[str] = []
    for one in (schema, *_branches(schema.get("anyOf")), *_branches(schema.get("oneOf"))):
        kind = one.get("type")
        found += [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else []
    return found


def _branches(given: object) -> list[Mapping[str, Any]]:
    return [one for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []
