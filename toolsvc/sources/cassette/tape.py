"""A cassette's file: JSON lines, and which recorded answer belongs to a call; pure but for `read`.

    {"cassette": 1, "tools": [descriptor, ...]}
    {"session": 0, "task": {...}, "tools": [descriptor, ...]}     tools of this session alone
    {"session": 0, "call": 0, "tool": "sql", "arguments": {...}, "result": {...}}

Descriptors and results are `toolwright.tool.v1` messages as protobuf writes them in JSON.

A call is known by its key: the task's metadata, then tool and arguments of every call that its
session made up to it, in order. So the answer of a tool with a state is given only to a session
that came to this state in the same way. The session's id is not part of it: every run has new ones.

Invariants
- Keys are derived from the lines whenever a file is read; none is stored.
- A call without a line has no answer. A similar call never answers it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from toolsvc.errors import StartError
from toolwright.tool.v1 import tool_pb2 as pb

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Outcome of one call; `result` is None if the call was cancelled without a result."""

    take: int
    """The session's place among those of its task."""
    result: pb.CallResult | None


@dataclass(slots=True, kw_only=True)
class Tape:
    """A cassette, indexed for look-up."""

    tools: list[pb.ToolDescriptor]
    answers: dict[str, list[Recording]] = field(default_factory=dict)
    """By key, in the order of recording."""
    takes: dict[str, list[list[pb.ToolDescriptor]]] = field(default_factory=dict)
    """By a task's key: the own tools of each of its sessions."""
    after: dict[str, list[str]] = field(default_factory=dict)
    """Next calls, by the key of the calls before them; for messages."""

    def answer(self, key: str, take: int) -> Recording | None:
        """The recording of the session's own take, where equal calls were answered differently."""
        found = self.answers.get(key, ())
        return next((one for one in found if one.take == take), None) or next(iter(found), None)


def task_key(metadata: Mapping[str, Any]) -> str:
    """What a session's key begins with."""
    return _digest(["task", metadata])


def next_key(key: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """The key after a call; it is the call's own."""
    return _digest([key, tool, arguments])


def described(tool: str, arguments: Mapping[str, Any]) -> str:
    """A call for a message."""
    return f"{tool} {_canonical(arguments):.200}"


def header_line(tools: Iterable[pb.ToolDescriptor]) -> str:
    return _line({"cassette": VERSION, "tools": list(map(_json, tools))})


def session_line(session: int, task: Mapping[str, Any], tools: Iterable[pb.ToolDescriptor]) -> str:
    return _line({"session": session, "task": task, "tools": list(map(_json, tools))})


def call_line(
    session: int,
    call: int,
    tool: str,
    arguments: Mapping[str, Any],
    result: pb.CallResult | None,
) -> str:
    told = None if result is None else _json(result)
    return _line(
        {"session": session, "call": call, "tool": tool, "arguments": arguments, "result": told}
    )


def read(path: Path) -> Tape:
    """Reads a cassette. Raises StartError, which names the invalid line."""
    try:
        lines = path.read_text("utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeError) as error:
        raise StartError(
            f"cassette {path} cannot be read ({error}); record one with "
            f"--set 'cassette.record=[\"NAME\"]'"
        ) from error
    tape: Tape | None = None  # Not splitlines: texts hold other line ends.
    sessions: dict[int, _Session] = {}
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            if tape is None:
                tape = _begin(entry)
            elif "call" in entry:
                sessions[entry["session"]].calls[entry["call"]] = _Call(
                    entry["tool"], entry["arguments"], _result(entry["result"])
                )
            else:
                sessions[entry["session"]] = _Session(entry["task"], _tools(entry))
        except (ValueError, KeyError, TypeError, AttributeError, ParseError) as error:
            raise StartError(
                f"{path}:{number} is no line of a cassette ({type(error).__name__}: {error})"
            ) from error
    if tape is None:
        raise StartError(f"{path} is empty: nothing was recorded")
    for _, session in sorted(sessions.items()):
        _add(tape, session)
    return tape


@dataclass(frozen=True, slots=True)
class _Call:
    tool: str
    arguments: dict[str, Any]
    result: pb.CallResult | None


@dataclass(slots=True)
class _Session:
    task: dict[str, Any]
    tools: list[pb.ToolDescriptor]
    calls: dict[int, _Call] = field(default_factory=dict)


def _begin(entry: Mapping[str, Any]) -> Tape:
    if entry.get("cassette") != VERSION:
        raise ValueError(f"a cassette begins with its version, {VERSION}: record it anew")
    return Tape(tools=_tools(entry))


def _add(tape: Tape, session: _Session) -> None:
    key = task_key(session.task)
    takes = tape.takes.setdefault(key, [])
    take = len(takes)
    takes.append(session.tools)
    for _, call in sorted(session.calls.items()):
        came = tape.after.setdefault(key, [])
        told = described(call.tool, call.arguments)
        if told not in came:
            came.append(told)
        key = next_key(key, call.tool, call.arguments)
        tape.answers.setdefault(key, []).append(Recording(take=take, result=call.result))


def _tools(entry: Mapping[str, Any]) -> list[pb.ToolDescriptor]:
    return [ParseDict(tool, pb.ToolDescriptor()) for tool in entry["tools"]]


def _result(told: dict[str, Any] | None) -> pb.CallResult | None:
    return None if told is None else ParseDict(told, pb.CallResult())


def _json(message: Any) -> dict[str, Any]:
    told: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return told


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False) + "\n"


def _canonical(value: Any) -> str:
    """The same for equal values, whatever came over a wire: 1.0 is 1, keys are in order."""
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _digest(value: Any) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()
