"""The `bash` tool: it runs commands and edits, and makes the text for the policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel, Field

from toolsvc.errors import Reason, Refused, backend_down
from toolsvc.plugin.tool import STRICT, Cancellation
from toolsvc.sandbox.config import Driver, SandboxConfig
from toolsvc.sandbox.jailed.drivers.shell import REPORT_BYTES
from toolsvc.sandbox.jailed.drivers.terminal import as_shown
from toolsvc.sandbox.session import Ending, Outcome, SandboxSession
from toolsvc.tools.bash.request import STOPS, BashArguments, find_request
from toolsvc.tools.bash.tree import metadata_files, read_folder
from toolsvc.tools.files import Entry, pack
from toolsvc.tools.sandboxed import (
    KINDS,
    HeldProcess,
    SandboxedTool,
    ToolSandbox,
    shell_report,
)
from toolsvc.types import Call, Descriptor, RawFormat, Result, SessionInfo, Text, ToolError
from toolwright.types import ToolErrorKind

_UNPACK_SECONDS = 20.0
_GRACE_SECONDS = 5.0
"""Time for the driver to kill a command that ignores the interrupt, in seconds. Usually it takes
half a second and keeps the session; after this time the session ends."""


class BashOptions(BaseModel):
    """Options of `bash`."""

    model_config = STRICT

    output_kib: int = Field(default=64, ge=1, description="kept output of one command")
    folder: Path | None = Field(
        default=None, description="whose files every session finds in its own folder"
    )


class _Shell(HeldProcess):
    """A session's shell, and the files that it begins with."""

    called = "shell"

    def __init__(self, sandbox: ToolSandbox, tree: list[Entry]) -> None:
        super().__init__(sandbox)
        self._tree = tree

    async def prepare(self) -> None:
        process = await self._sandbox.take()
        try:
            if self._tree:
                await _unpack(process, pack(self._tree))
        except BaseException:
            process.close()
            raise
        self.process = process
        self._tree = []


class BashTool(SandboxedTool):
    Config = BashOptions
    driver = Driver.SHELL
    name = "bash"
    description = (
        "Runs a command in a bash that lives on until the session ends, or views and edits a "
        "file. Standard input is empty."
    )
    usage = (
        "<bash> command </bash>\n"
        "Runs the command in a bash whose directory, variables and background jobs live on; shows "
        "its output and its exit code. Standard input is empty.\n"
        '<tool_call>{"name": "bash", "arguments": {"edit": "view", "path": "file"}}</tool_call>\n'
        "views a file (view_range: [first, last]) or folder; other edits: create (file_text), "
        "str_replace (old_str, which occurs once, new_str), insert (insert_line, new_str), undo."
    )
    arguments = BashArguments
    format = RawFormat()
    stop_strings = STOPS
    stateful = True
    run_limit = 30.0

    def __init__(
        self, config: BashOptions | None = None, sandbox: SandboxConfig | None = None
    ) -> None:
        super().__init__(config, sandbox)
        self._disk_bytes = (sandbox or SandboxConfig()).disk_bytes
        self._output_bytes = self.config.output_kib * 1024
        folder = self.config.folder
        self._tree = read_folder(folder, self._disk_bytes) if folder else []

    async def open(self, session: SessionInfo) -> _Shell:
        files = metadata_files(session.metadata, self._disk_bytes)
        return _Shell(self._sandbox, [*self._tree, *files])

    def parse(self, action: str, descriptor: Descriptor) -> dict[str, Any]:
        return find_request(action)

    async def run(self, state: _Shell, call: Call, cancellation: Cancellation) -> Result:
        if call.arguments["finish"]:
            return Result(done=True)
        request = {name: value for name, value in call.arguments.items() if value is not None}
        outcome = await state.run(
            json.dumps(request, ensure_ascii=False),
            cancellation,
            limit=call.run_limit,
            keep=self._output_bytes + REPORT_BYTES,
            grace=_GRACE_SECONDS,
        )
        return as_result(outcome, call.run_limit)


async def _unpack(process: SandboxSession, tree: BinaryIO) -> None:
    """Raises Refused if the tree does not fit."""
    outcome = await process.run(
        "{}", limit=_UNPACK_SECONDS, keep=REPORT_BYTES * 4, attach=tree.fileno()
    )
    if outcome.ending in (Ending.EXCEPTION, Ending.LIMIT):
        why = outcome.reason or outcome.output.splitlines()[0]
        raise Refused(
            Reason.INVALID_REQUEST,
            f"the session's files cannot be put into its folder: {why}",
            fix="raise --disk-mib",
        )
    if outcome.ending is not Ending.OK:
        raise backend_down(f"the session's files were not unpacked: {outcome.reason or 'too slow'}")


def as_result(outcome: Outcome, run_limit: float) -> Result:
    """The output, and a line in brackets for each thing that the output cannot tell."""
    if outcome.lost:
        return _lost(outcome, run_limit)
    output, _, line = outcome.output.rpartition("\n")
    report = shell_report(line)
    dropped, code, shell = report.get("dropped", 0), report.get("exit"), report.get("shell")
    notes = []
    kind = KINDS[outcome.ending]
    if dropped:
        output = output.rstrip("\ufffd")
        notes.append(f"the output was longer: {dropped} bytes are not shown")
    if shell == "killed":
        notes.append(f"{_stopped(outcome.ending, run_limit)}; {_KILLED}")
    elif kind in (ToolErrorKind.TIMEOUT, ToolErrorKind.CANCELLED):
        notes.append(f"{_stopped(outcome.ending, run_limit)}; the shell goes on")
    elif shell == "ended":
        notes.append(f"the shell ended with exit code {code}; {_ENDED}")
    elif code:
        notes.append(f"exit code {code}")
    output = as_shown(output)
    text = "\n".join([*([output.rstrip()] if output.strip() else []), *(f"[{n}]" for n in notes)])
    error = None
    if kind is not ToolErrorKind.NONE:
        error = ToolError(kind=kind, message=notes[-1] if notes else text)
    return Result(
        observation=(Text(text=text),),
        error=error,
        truncated=bool(dropped),
        metrics={} if code is None else {"exit_code": float(code)},
    )


_ENDED = "its variables and jobs are gone, the files are kept, the next command gets a new shell"
_KILLED = f"it did not stop when interrupted and was killed with the shell; {_ENDED}"


def _lost(outcome: Outcome, run_limit: float) -> Result:
    message = f"{outcome.reason}; the session and its files are lost"
    if outcome.ending in (Ending.TIMEOUT, Ending.CANCELLED):
        message = f"{_stopped(outcome.ending, run_limit)}; {message}"
    text = f"{as_shown(outcome.output).rstrip()}\n[{message}]".lstrip("\n")
    error = ToolError(kind=KINDS[outcome.ending], message=message, session_lost=True)
    return Result(observation=(Text(text=text),), error=error, truncated=outcome.truncated)


def _stopped(ending: Ending, run_limit: float) -> str:
    if ending is Ending.TIMEOUT:
        return f"stopped after {run_limit:g} s"
    return "cancelled" if ending is Ending.CANCELLED else "interrupted"
