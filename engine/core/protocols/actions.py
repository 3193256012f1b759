"""Which tool an action calls, and with what arguments; pure.

`toolwright.reading.actions` reads blocks and calls; this module finds the tool of an action. A
session's tools may come from several services. Candidates are the tools that have the action's
stop; the first one that accepts the action gets it, in the order of the recipe's services. A tag
accepts the text between its marks, a JSON call the name of the tool. Raw formats come last, because
only their services know what they accept.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.types import Call, End, ToolSpec
from toolwright.reading.actions import JsonCall, Tags, last_call, last_span, no_block
from toolwright.types import StopReason


def read_call(text: str, stop: str, tools: Sequence[ToolSpec]) -> Call:
    """The call of an action that ended at `stop`.

    If no tool accepts the action, the call is as the first tool read it: with the reason, or with a
    name that the session will not know. A call whose stop matches no tool is sent unchanged to the
    first service.
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
    """The last call in `open_tag`{"name": ..., "arguments": {...}}`close_tag`.

    The name is not checked against the session's tools.
    """
    return as_call(text, last_call(text, Tags(open_tag, close_tag)))


def json_tags(tools: Sequence[ToolSpec]) -> tuple[Tags, ...]:
    """Tags of the tools that are called in JSON."""
    return tuple(Tags(tool.open_tag, tool.close_tag) for tool in tools if tool.json_call)


def as_call(action: str, found: JsonCall) -> Call:
    """A call that was read, in the engine's type."""
    return Call(
        action=action, tool=found.name, arguments=found.arguments, invalid_reason=found.fault
    )


def _read_by(tool: ToolSpec, text: str, stop: str) -> tuple[bool, Call]:
    """Whether the tool accepts the action, and the call as it reads it."""
    if tool.json_call:
        call = read_json_call(text, tool.open_tag, stop)
        return not call.invalid_reason and call.tool == tool.name, call
    begin, end = last_span(text, tool.open_tag, stop)
    if begin < 0:
        reason = no_block(end, tool.open_tag, stop)
        return False, Call(action=text, tool=tool.name, invalid_reason=reason)
    arguments = {tool.argument: text[begin:end].strip()} if tool.argument else None
    return True, Call(action=text, tool=tool.name, arguments=arguments)


def _raw_call(text: str, raw: Sequence[ToolSpec]) -> Call:
    """A call for the service of the first tool, which chooses among several of its own tools."""
    first = raw[0]
    if any(tool.service == first.service for tool in raw[1:]):
        return Call(action=text, service=first.service)
    return Call(action=text, tool=first.name)


def nothing_done(body: str) -> End:
    """The end of a trajectory whose action neither calls nor answers."""
    empty = not body.strip()
    return End(reason=StopReason.EMPTY_OUTPUT if empty else StopReason.NO_ACTION_IN_OUTPUT)
