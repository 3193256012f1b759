"""Calls that a model means and does not write between the tags. Pure.

Models that were never trained on the tags write a call in other forms: tags that do not close, a
fence, JSON alone, other keys than "name" and "arguments", or `tool(argument="value")`. `call_meant`
gives the call as it should stand. It reads a bounded part of the text, so its time is bounded too.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from .answers import CALL

LONGEST = 4000
"""Characters of an action that are read, from its end."""
MOST_TRIES = 64
"""Opening braces at which JSON is tried."""
_THOUGHT_END = "</think>"
_NAMES = ("name", "tool", "tool_name", "function", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "action_input", "input")
_BESIDE = ("type", "id")
"""Keys beside a call that are no arguments."""


def call_meant(text: str, names: Collection[str]) -> str | None:
    """The last call of a tool of `names` that an action means, between tags; None without one.

    A call that is drafted in a closed thought does not count.
    """
    tail = text.rpartition(_THOUGHT_END)[2][-LONGEST:]
    calls = [call for value in _objects(tail) if (call := _json_call(value, names))]
    calls = calls or [call for line in tail.splitlines() if (call := _python_call(line, names))]
    if not calls:
        return None
    name, arguments = calls[-1]
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<{CALL}>{body}</{CALL}>"


def _objects(text: str) -> Iterator[Any]:
    """The JSON objects in a text, in order, without those inside of others."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    at = 0
    for _ in range(MOST_TRIES):
        at = text.find("{", at)
        if at < 0:
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
        else:
            yield value


def _json_call(value: Any, names: Collection[str]) -> tuple[str, Mapping[str, Any]] | None:
    inner = value.get("function")
    if isinstance(inner, Mapping):  # as an API's answer has it
        value = inner
    named = [key for key in _NAMES if isinstance(value.get(key), str) and value[key] in names]
    key = named[0] if named else None
    if key is None:
        return None
    rest = {name: one for name, one in value.items() if name != key and name not in _BESIDE}
    given = next((rest[name] for name in _ARGUMENTS if name in rest), rest)
    if isinstance(given, str):
        with suppress(ValueError, RecursionError):
            given = json.loads(given, parse_constant=_refuse)
    return (value[key], given) if isinstance(given, Mapping) else None


def _python_call(line: str, names: Collection[str]) -> tuple[str, Mapping[str, Any]] | None:
    text = line.strip(" \t`*-")
    if not text.endswith(")") or text.partition("(")[0] not in names:
        return None
    with suppress(SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        call = ast.parse(text, mode="eval").body
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args:
            given = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords if one.arg}
            json.dumps(given, allow_nan=False)
            return call.func.id, given
    return None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
