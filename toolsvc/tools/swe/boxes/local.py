"""Boxes on this machine: sessions of the sandbox, for machines without containers.

Programs are the machine's own, read-only. There are no images, and there is no network.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import secrets
import shlex
from collections.abc import Mapping, Sequence

from toolsvc.errors import Refused
from toolsvc.plugin.tool import Cancellation
from toolsvc.sandbox.config import Driver, SandboxConfig
from toolsvc.sandbox.jailed.drivers.shell import REPORT_BYTES
from toolsvc.sandbox.session import Ending, Outcome, SandboxSession
from toolsvc.tools.files import Entry, pack
from toolsvc.tools.sandboxed import KINDS, ToolSandbox, shell_report
from toolsvc.tools.swe.boxes.box import Box, BoxError, BoxGone, CommandRun, Runner, StartFailed

_FOLDER = "testbed"
"""Folder of the repository, below the session's own folder, whose name is random."""
_GRACE_SECONDS = 5.0
_WRITE_SECONDS = 60.0


class LocalRunner(Runner):
    def __init__(self, sandbox: SandboxConfig) -> None:
        self._sandbox = ToolSandbox(sandbox, Driver.SHELL)

    async def start(self) -> None:
        await self._sandbox.start()
        self.isolation = str(self._sandbox.level)

    async def stop(self) -> None:
        await self._sandbox.close()

    def figures(self) -> Mapping[str, float]:
        return self._sandbox.figures()

    async def new_box(self, image: str) -> Box:
        try:
            return LocalBox(await self._sandbox.take())
        except Refused as error:
            raise StartFailed(error.message) from error


class LocalBox(Box):
    """The session's bash lives on, but every command gets a bash of its own below it."""

    folder = f"~/{_FOLDER}"

    def __init__(self, session: SandboxSession) -> None:
        self._session = session

    async def exec(
        self, command: str, *, limit: float, keep: int, cancellation: Cancellation | None = None
    ) -> CommandRun:
        if cancellation is not None:
            cancellation.on_request(self._session.cancel)
        line = f"cd {self.folder} && bash -c {shlex.quote(command)}"
        outcome = await self._run(line, limit, keep)
        output, last = outcome.output, ""
        if not outcome.lost:
            output, _, last = output.rpartition("\n")
        report = shell_report(last)
        return CommandRun(
            output=output.encode(),
            dropped=report.get("dropped", 0),
            code=report.get("exit"),
            kind=KINDS[outcome.ending],
            lost=outcome.reason if outcome.lost else "",
        )

    async def read(self, command: str, *, limit: float, most: int) -> bytes:
        # Sessions answer text, and what runs in the background may print before it.
        begin = secrets.token_hex(16)
        line = (
            f"echo {begin}; set -o pipefail; "
            f"( {command} ) 2>/dev/null | head -c {most + 1} | base64 -w0; "
            'echo "/${PIPESTATUS[0]}"'
        )
        ran = await self.exec(line, limit=limit, keep=2 * len(begin) + (most + 1) * 4 // 3 + 64)
        text, _, code = ran.output.decode().partition(begin)[2].strip().rpartition("/")
        if ran.kind is not ran.kind.NONE:
            raise BoxError(ran.lost or f"reading took longer than {limit:g} s")
        try:
            data = base64.b64decode(text, validate=True)
        except binascii.Error:
            raise BoxError("what runs in the background prints over it: stop that") from None
        if len(data) > most:
            raise BoxError(f"it has more than {most} bytes")
        if code != "0":
            raise BoxError(f"the command ended with exit code {code}")
        return data

    async def write(self, entries: Sequence[Entry]) -> None:
        below = [entry._replace(path=f"{_FOLDER}/{entry.path}") for entry in entries]
        tree = await asyncio.to_thread(pack, below)
        with tree:
            outcome = await self._run("", _WRITE_SECONDS, REPORT_BYTES * 4, attach=tree.fileno())
        if outcome.ending is not Ending.OK:
            raise BoxError(outcome.reason or outcome.output.strip().partition("\n")[0])

    async def close(self) -> None:
        self._session.close()

    async def _run(self, line: str, limit: float, keep: int, attach: int | None = None) -> Outcome:
        outcome = await self._session.run(
            json.dumps({"command": line}),
            limit=limit,
            keep=keep + REPORT_BYTES,
            attach=attach,
            grace=_GRACE_SECONDS,
        )
        if outcome.ending is Ending.TAKEN_DOWN:
            self.gone = outcome.reason
            raise BoxGone(outcome.reason)
        if outcome.lost:
            self.broken = outcome.reason
        return outcome
