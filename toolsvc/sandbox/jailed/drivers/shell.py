"""One session: a bash and file tools on the same tree.

A call is JSON: `{"unpack": true}` with a tree of files attached, `{"command": text}` for bash, or
`{"edit": "view", "path": ...}` for the file tools. The answer is what was printed and, as its last
line, a report in JSON, which is the host's to put into words: `dropped`, and of a command `exit`
and `shell`, see `bash.Ran`.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any, NamedTuple

from .. import wire
from .bash import Bash
from .channel import answer, calls
from .files import EditFailed, Files, unpack

REPORT_BYTES = 256
"""Bytes of an answer that are kept free for the report."""

_ENVIRONMENT = {
    "HISTFILE": "/dev/null",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "PS1": "",
    "PS2": "",
    "TERM": "dumb",
}
"""Environment variables in addition to those of every confined process."""


class _Said(NamedTuple):
    status: int
    output: bytes
    report: dict[str, Any]


def prepare() -> None:
    """Nothing that sessions could share."""


def serve(state: None, channel: socket.socket) -> None:
    """Answers calls until the host hangs up. Does not return."""
    bash = Bash({**os.environ, **_ENVIRONMENT})
    files = Files()
    for call, attached in calls(channel, lambda: bash.idle(channel.fileno())):
        room = max(0, call.keep - 1 - REPORT_BYTES)
        try:
            request = json.loads(call.code)
            if attached is not None:
                unpack(attached)
                said = _Said(wire.OK, b"", {})
            elif "edit" in request:
                said = _edit(files, request, bash.folder, room)
            else:
                said = _run(bash, request["command"], room)
        except (OSError, ValueError, KeyError, TypeError, MemoryError) as error:
            said = _Said(wire.EXCEPTION, str(error).encode()[:room], {})
        answer(channel, call, said.status, said.output + b"\n" + json.dumps(said.report).encode())


def _run(bash: Bash, command: str, room: int) -> _Said:
    ran = bash.run(command, room)
    report = {"exit": ran.code, "dropped": ran.dropped, "shell": ran.shell}
    return _Said(wire.INTERRUPTED if ran.interrupted else wire.OK, ran.output, report)


def _edit(files: Files, request: dict[str, Any], folder: str, room: int) -> _Said:
    try:
        output = files.edit(request, folder).encode("utf-8", "replace")
    except EditFailed as error:
        return _Said(wire.EXCEPTION, str(error).encode("utf-8", "replace")[:room], {})
    return _Said(wire.OK, output[:room], {"dropped": max(0, len(output) - room)})
