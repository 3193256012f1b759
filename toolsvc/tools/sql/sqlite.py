"""SQLite: a private in-memory copy of a database for each session, in a process of the sandbox.

Owns the sandbox and the life of each session's copy; what a statement may do is decided where
it runs, in `toolsvc.sandbox.jailed.drivers.database`.

Invariants
- A session that may write is lost with its process. One that may only read has nothing to lose:
  the next statement gets a fresh copy.
"""

from __future__ import annotations

import json
from pathlib import Path

from toolsvc.errors import Reason, Refused, backend_down
from toolsvc.plugin.tool import Cancellation
from toolsvc.sandbox.config import Driver, SandboxConfig
from toolsvc.sandbox.session import Ending, Outcome, SandboxSession
from toolsvc.tools.sandboxed import KINDS, ToolSandbox
from toolsvc.tools.sql.templates import Templates
from toolsvc.tools.sql.types import SqlAnswer
from toolsvc.types import SessionInfo
from toolwright.types import ToolErrorKind

_OPEN_SECONDS = 10.0


class _Copy:
    """A session's state. `process` is None before the first statement."""

    __slots__ = ("path", "process")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process: SandboxSession | None = None


class SqliteBackend:
    def __init__(
        self,
        templates: Templates,
        sandbox: SandboxConfig,
        *,
        writable: bool,
        rows: int,
        output_bytes: int,
    ) -> None:
        """`rows`: shown of a long result."""
        self._templates = templates
        self._sandbox = ToolSandbox(sandbox, Driver.DATABASE)
        self._writable = writable
        self._rows = rows
        self._output_bytes = output_bytes

    @property
    def isolation(self) -> str:
        return str(self._sandbox.level)

    async def start(self) -> None:
        await self._sandbox.start()

    async def stop(self) -> None:
        await self._sandbox.close()
        self._templates.clear()

    def figures(self) -> dict[str, float]:
        return {**self._sandbox.figures(), "template_bytes": self._templates.held_bytes}

    async def open(self, info: SessionInfo) -> _Copy:
        return _Copy(self._templates.find(info.metadata))

    async def close(self, session: _Copy) -> None:
        if session.process is not None:
            session.process.close()

    def ready(self, session: _Copy) -> bool:
        # A writer that is gone is told so by its next statement.
        return session.process is not None and (self._writable or session.process.gone is None)

    def lost(self, session: _Copy) -> str | None:
        # One that its own statement ended says so in its answers.
        if not self._writable or session.process is None:
            return None
        return session.process.taken_down

    async def prepare(self, session: _Copy) -> None:
        await self.close(session)
        session.process = None
        template = await self._templates.get(session.path)
        process = await self._sandbox.take()
        try:
            opened = await process.run(
                json.dumps({"open": {"writable": self._writable}}),
                limit=_OPEN_SECONDS,
                keep=1000,
                attach=template.fileno(),
            )
        except BaseException:
            process.close()
            raise
        if opened.ending is not Ending.OK:
            process.close()
            raise _not_opened(session.path.name, opened)
        session.process = process

    async def run(
        self,
        session: _Copy,
        sql: str,
        limit: float,
        cancellation: Cancellation,
        *,
        as_json: bool = False,
    ) -> SqlAnswer:
        process = session.process
        if process is None:
            raise RuntimeError("run before prepare")
        cancellation.on_request(process.cancel)
        asked = {"sql": sql, "rows": self._rows, "json": as_json}
        request = json.dumps(asked, ensure_ascii=False)
        outcome = await process.run(request, limit=limit, keep=self._output_bytes)
        if outcome.ending is Ending.TAKEN_DOWN:
            raise self._taken(outcome.reason)
        lost = outcome.lost and self._writable
        kind = KINDS[outcome.ending]
        if kind in (ToolErrorKind.NONE, ToolErrorKind.EXCEPTION) and not outcome.lost:
            text = outcome.output
        else:
            text = f"Error: {_what_happened(outcome.ending, outcome.reason, limit)}"
            text += "; the database and its changes are lost" if lost else ""
        return SqlAnswer(text=text, kind=kind, cut=outcome.truncated, lost=lost)

    def _taken(self, why: str) -> Refused:
        """Not the statement's doing."""
        if not self._writable:
            return backend_down(why)
        return Refused(Reason.SESSION_LOST, f"the database was lost: {why}")


def _what_happened(ending: Ending, reason: str, limit: float) -> str:
    if ending is Ending.TIMEOUT:
        return f"stopped after {limit:g} s"
    if ending is Ending.CANCELLED:
        return "cancelled"
    if ending is Ending.OUT_OF_MEMORY:
        return "out of memory"
    return reason


def _not_opened(name: str, outcome: Outcome) -> Refused:
    if outcome.ending not in (Ending.EXCEPTION, Ending.OUT_OF_MEMORY):
        return backend_down(
            f"database {name} was not opened: {outcome.reason or 'it took too long'}"
        )
    return Refused(
        Reason.INVALID_REQUEST,
        f"database {name} cannot be opened: {outcome.output or outcome.reason}",
        subject=name,
        fix="raise --memory-mib" if outcome.ending is Ending.OUT_OF_MEMORY else "",
    )
