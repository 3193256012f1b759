"""Which tool an action calls, and with what arguments; pure.

A session's tools may come from several services. An action belongs to the tools at one of whose
stops it ends; of those the first that accepts it takes it, in the order of the
recipe's services. A tag accepts what stands between its marks, a JSON call what names the tool.
A raw format comes last, for only its service can tell what it accepts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from engine.types import Call, ToolSpec
from toolwright.json_data import check_depth


def read_call(text: str, stop: str, tools: Sequence[ToolSpec]) -> Call:
    """The call of an action that ended at `stop`.

    Where no tool accepts the action the call is as the first one read it: with the reason, or
    with a name that the session will not know. At whose stop no tool ends goes to the first
    service as it is.
    """
    ending = [tool for tool in tools if stop in tool.stop_strings]
    refused = None
    for tool in ending:
        if not tool.raw:
            accepted, call = _read_by(tool, text, stop)
            if accepted:
                return call
            refused = refused or call
    raw = [tool for tool in ending if tool.raw]
    if raw:
        return _raw_call(text, raw)
    return refused or Call(action=text)


def read_json_call(text: str, open_tag: str, close_tag: str) -> Call:
    """The call in the last `open_tag`{"name": ..., "arguments": {...}}`close_tag`, which ends the
    text; whether there is a tool of that name is not asked."""
    start = text.rfind(open_tag)
    if start < 0:
        return Call(action=text, invalid_reason=f"no {open_tag}")
    body = text[start + len(open_tag) : len(text) - len(close_tag)]
    try:
        call = json.loads(body, parse_constant=_no_constant)
        json.dumps(call, ensure_ascii=False).encode()  # half a surrogate pair is no text
        check_depth(call)
    except (ValueError, RecursionError) as error:
        return Call(action=text, invalid_reason=f"the call is not JSON: {error}")
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return Call(action=text, invalid_reason='the call needs {"name", "arguments"}')
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        return Call(action=text, tool=call["name"], invalid_reason="arguments are no object")
    return Call(action=text, tool=call["name"], arguments=arguments)


def _read_by(tool: ToolSpec, text: str, stop: str) -> tuple[bool, Call]:
    """Whether the tool accepts the action, and the call as it reads it."""
    if tool.json_call:
        call = read_json_call(text, tool.open_tag, stop)
        return not call.invalid_reason and call.tool == tool.name, call
    start = text.rfind(tool.open_tag)
    if start < 0:
        return False, Call(action=text, tool=tool.name, invalid_reason=f"no {tool.open_tag}")
    body = text[start + len(tool.open_tag) : len(text) - len(stop)]
    arguments = {tool.argument: body.strip()} if tool.argument else None
    return True, Call(action=text, tool=tool.name, arguments=arguments)


def _raw_call(text: str, raw: Sequence[ToolSpec]) -> Call:
    """For the first one's service, which finds the tool where several of it could be meant."""
    first = raw[0]
    if any(tool.service == first.service for tool in raw[1:]):
        return Call(action=text, service=first.service)
    return Call(action=text, tool=first.name)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
