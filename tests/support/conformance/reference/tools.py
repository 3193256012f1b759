"""The three small tools of the reference service, and how their actions are read.

`counter` is stateful and serial, `echo` runs in parallel, `draw` answers media. Between them they
can be brought to everything that the suite looks at; `probes.toml` says how.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolwright import wire
from toolwright.common.v1 import media_pb2
from toolwright.json_data import read_exact
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import ToolErrorKind

INLINE_BYTES = 256 << 10
PICTURE = b'<svg xmlns="http://www.w3.org/2000/svg"><circle r="9"/></svg>'
PHOTO = bytes(range(256)) * 5000
"""Above 256 KiB, so it travels as a blob."""


class InvalidAction(Exception):
    """The action cannot be read, or its arguments do not fit; the policy reads the message."""


class ToolFailed(Exception):
    """The tool ran and failed; the policy reads the message."""


@dataclass(slots=True)
class State:
    """What the tools keep of one session."""

    counter: int = 0
    serial: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by a call of a tool without parallel calls while it runs."""


Run = Callable[[State, Mapping[str, Any]], Awaitable[pb.CallResult]]


async def counter(state: State, arguments: Mapping[str, Any]) -> pb.CallResult:
    """Adds, after a while, and says what the counter holds."""
    await asyncio.sleep(arguments["after"])
    if state.counter + arguments["add"] < 0 or arguments["add"] < 0:
        raise ToolFailed("the counter only goes up")
    state.counter += arguments["add"]
    return answered(str(state.counter))


async def echo(state: State, arguments: Mapping[str, Any]) -> pb.CallResult:
    """Says a text again, after a while, `times` times; beyond 256 KiB it is cut."""
    await asyncio.sleep(arguments["after"])
    text = arguments["text"] * arguments["times"]
    kept = text.encode()[:INLINE_BYTES].decode(errors="ignore")
    result = answered(kept)
    result.truncated = kept != text
    return result


async def draw(state: State, arguments: Mapping[str, Any]) -> pb.CallResult:
    """A picture inline and a large one as a blob, whatever is asked for."""
    return pb.CallResult(
        valid=True,
        observation=[
            pb.ObservationPart(media=pb.InlineMedia(media_type="image/svg+xml", data=PICTURE)),
            pb.ObservationPart(
                blob=media_pb2.BlobRef(
                    sha256=hashlib.sha256(PHOTO).hexdigest(),
                    media_type="image/x-raw",
                    size=len(PHOTO),
                )
            ),
        ],
    )


RUN: dict[str, Run] = {"counter": counter, "echo": echo, "draw": draw}


def descriptors() -> list[pb.ToolDescriptor]:
    """Of the three tools."""
    open_mark, close_mark = "<tool_call>", "</tool_call>"
    call = pb.ActionFormat(json_call=pb.JsonCallFormat(open=open_mark, close=close_mark))
    return [
        pb.ToolDescriptor(
            name="counter",
            description="Adds to a counter of the session, after some seconds, and tells it.",
            usage='<tool_call>{"name": "counter", "arguments": {"add": 1, "after": 0}}</tool_call>',
            arguments_schema=_schema(add="integer", after="number"),
            stop_strings=[close_mark],
            action_format=call,
            stateful=True,
            default_run_limit=wire.duration(30),
            capabilities=pb.ToolCapabilities(cancel=True, fork=True),
        ),
        pb.ToolDescriptor(
            name="echo",
            description="Says a text some times, after some seconds.",
            usage='<tool_call>{"name": "echo", "arguments": {"text": "hi", "after": 0, "times": 1}}'
            "</tool_call>",
            arguments_schema=_schema(text="string", after="number", times="integer"),
            stop_strings=[close_mark],
            action_format=call,
            parallel_calls=True,
            default_run_limit=wire.duration(30),
            capabilities=pb.ToolCapabilities(cancel=True, fork=True),
        ),
        pb.ToolDescriptor(
            name="draw",
            description="Draws a shape.",
            usage="<draw>circle</draw>",
            arguments_schema=_schema(shape="string"),
            stop_strings=["</draw>"],
            action_format=pb.ActionFormat(
                tag=pb.TagFormat(open="<draw>", close="</draw>", argument="shape")
            ),
            parallel_calls=True,
            default_run_limit=wire.duration(30),
            capabilities=pb.ToolCapabilities(cancel=True, media=True),
        ),
    ]


def find_tool(action: str) -> str:
    """Name of the tool whose format the action has. InvalidAction."""
    if "</draw>" in action:
        return "draw"
    named = _json_call(action).get("name")
    if named not in RUN:
        raise InvalidAction(f"there is no tool {named!r}")
    return str(named)


def read_arguments(request: pb.CallToolRequest, tool: pb.ToolDescriptor) -> Mapping[str, Any]:
    """Arguments by name, as the schema wants them. InvalidAction."""
    if request.HasField("arguments"):
        try:
            arguments: Any = wire.mapping(request.arguments, request.arguments_json)
        except ValueError as error:
            raise InvalidAction(f"arguments_json is {error}") from error
    elif tool.action_format.HasField("tag"):
        arguments = {tool.action_format.tag.argument: _between(request.action, "draw")}
    else:
        arguments = _json_call(request.action).get("arguments")
    schema = wire.mapping(tool.arguments_schema)
    if not isinstance(arguments, dict) or set(arguments) != set(schema["required"]):
        raise InvalidAction(f"the arguments are {', '.join(schema['required'])}")
    for name, value in arguments.items():
        kind = schema["properties"][name]["type"]
        if not isinstance(value, _TYPES[kind]):
            raise InvalidAction(f"{name} is no {kind}")
    return arguments


def answered(text: str) -> pb.CallResult:
    """A valid result with one text."""
    return pb.CallResult(valid=True, observation=[pb.ObservationPart(text=text)])


def failed(kind: ToolErrorKind, message: str) -> pb.CallResult:
    """A tool error that the policy reads."""
    result = answered(message)
    result.error.kind = int(kind)  # type: ignore[assignment]
    result.error.message = message
    return result


def invalid(reason: str) -> pb.CallResult:
    """An action that was not understood."""
    result = failed(ToolErrorKind.INVALID_ACTION, reason)
    result.valid = False
    result.invalid_reason = reason
    return result


_TYPES: dict[str, Any] = {"string": str, "integer": int, "number": int | float}


def _schema(**types: str) -> Any:
    properties = {name: {"type": kind} for name, kind in types.items()}
    return wire.struct({"type": "object", "properties": properties, "required": list(types)})


def _between(action: str, name: str) -> str:
    _, opened, rest = action.partition(f"<{name}>")
    body, closed, _ = rest.rpartition(f"</{name}>")
    if not (opened and closed):
        raise InvalidAction(f"the action has no <{name}>...</{name}>")
    return body


def _json_call(action: str) -> dict[str, Any]:
    try:
        call = read_exact(_between(action, "tool_call"))
    except ValueError as error:
        raise InvalidAction(f"the call is no JSON: {error}") from error
    if not isinstance(call, dict):
        raise InvalidAction("the call is no JSON object")
    return call
