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
from toolsvc.sandbox.session import Ending, Outcome
from toolsvc.tools.sandboxed import KINDS, HeldProcess, ToolSandbox
from toolsvc.tools.sql.templates import Templates
from toolsvc.tools.sql.types import SqlAnswer
from toolsvc.types import SessionInfo
from toolwright.types import ToolErrorKind

_OPEN_SECONDS = 10.0


class _Copy(HeldProcess):
    """A session's state."""

    called = "database"

    def __init__(self, backend: SqliteBackend, path: Path) -> None:
        super().__init__(backend._sandbox, keeps=backend._writable)
        self._backend = backend
        self._path = path

    @property
    def ready(self) -> bool:
        # The next statement of a writer answers that its process is gone.
        return self.process is not None and (self._keeps or self.process.gone is None)

    async def prepare(self) -> None:
        self.close()
        template = await self._backend._templates.get(self._path)
        process = await self._sandbox.take()
        try:
            opened = await process.run(
                json.dumps({"open": {"writable": self._keeps}}),
                limit=_OPEN_SECONDS,
                keep=1000,
                attach=template.fileno(),
            )
        except BaseException:
            process.close()
            raise
        if opened.ending is not Ending.OK:
            process.close()
            raise _not_opened(self._path.name, opened)
        self.process = process


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
        return _Copy(self, self._templates.find(info.metadata))

    async def close(self, session: _Copy) -> None:
        session.close()

    async def run(
        self,
        session: _Copy,
        sql: str,
        limit: float,
        cancellation: Cancellation,
        *,
        as_json: bool = False,
    ) -> SqlAnswer:
        asked = {"sql": sql, "rows": self._rows, "json": as_json}
        request = json.dumps(asked, ensure_ascii=False)
        outcome = await session.run(request, cancellation, limit=limit, keep=self._output_bytes)
        lost = outcome.lost and self._writable
        kind = KINDS[outcome.ending]
        if kind in (ToolErrorKind.NONE, ToolErrorKind.EXCEPTION) and not outcome.lost:
            text = outcome.output
        else:
            text = f"Error: {_what_happened(outcome.ending, outcome.reason, limit)}"
            text += "; the database and its changes are lost" if lost else ""
        return SqlAnswer(text=text, kind=kind, cut=outcome.truncated, lost=lost)


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
