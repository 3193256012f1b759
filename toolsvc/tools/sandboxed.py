"""The sandbox for tools: converts its failures to the service's errors, and its endings to the
contract's.

`python`, `bash` and `sql` differ in what their processes run and in what the policy reads of it.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from toolsvc.errors import Reason, Refused, StartError, backend_down
from toolsvc.plugin.tool import Cancellation, LiveState, OutOfProcess, Tool
from toolsvc.sandbox.config import Driver, SandboxConfig
from toolsvc.sandbox.errors import SandboxError, SandboxUnavailable
from toolsvc.sandbox.sandbox import Sandbox
from toolsvc.sandbox.session import Ending, Outcome, SandboxSession
from toolwright.types import ToolErrorKind

KINDS = {
    Ending.OK: ToolErrorKind.NONE,
    Ending.EXCEPTION: ToolErrorKind.EXCEPTION,
    Ending.TIMEOUT: ToolErrorKind.TIMEOUT,
    Ending.CANCELLED: ToolErrorKind.CANCELLED,
    Ending.OUT_OF_MEMORY: ToolErrorKind.OUT_OF_MEMORY,
    Ending.LIMIT: ToolErrorKind.LIMIT,
    Ending.CRASHED: ToolErrorKind.CRASHED,
}
"""TAKEN_DOWN is not here: the policy must not read it."""


def shell_report(line: str) -> dict[str, Any]:
    """The last line of an answer of `Driver.SHELL`. Not trusted: code that took the driver over may
    have written anything."""
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(report, dict):
        return {}
    found = {name: report.get(name) for name in ("dropped", "exit")}
    kept: dict[str, Any] = {
        name: value for name, value in found.items() if type(value) is int and 0 <= value < 1 << 53
    }
    if isinstance(report.get("shell"), str):
        kept["shell"] = report["shell"]
    return kept


class ToolSandbox(Sandbox):
    async def start(self) -> None:
        """Raises StartError if no level of isolation holds."""
        try:
            await super().start()
        except SandboxUnavailable as error:
            raise StartError(str(error)) from error

    async def take(self) -> SandboxSession:
        """A fresh confined session, which the caller must close. Raises Refused if none can be
        had."""
        try:
            return await super().take()
        except SandboxError as error:
            raise backend_down(f"no sandbox: {error}") from error


class HeldProcess(LiveState):
    """State of a session: its process of the sandbox, taken when the first call needs it. Many
    trajectories open a session and never call it."""

    called = "process"
    """Name of what the process keeps, for messages."""

    def __init__(self, sandbox: ToolSandbox, *, keeps: bool = True) -> None:
        """keeps: the session is lost with its process; otherwise the next call takes another."""
        self._sandbox = sandbox
        self._keeps = keeps
        self.process: SandboxSession | None = None

    @property
    def ready(self) -> bool:
        return self.process is not None

    @property
    def lost(self) -> str | None:
        # A process that its own code ended says so in its answers.
        return self.process.taken_down if self._keeps and self.process is not None else None

    async def prepare(self) -> None:
        self.process = await self._sandbox.take()

    async def run(self, request: str, cancellation: Cancellation, **how: Any) -> Outcome:
        """Outcome of a request. how: as `SandboxSession.run` takes it. Raises Refused if the
        process was taken away, which is not the policy's fault."""
        if self.process is None:
            raise RuntimeError("run before prepare")
        cancellation.on_request(self.process.cancel)
        outcome = await self.process.run(request, **how)
        if outcome.ending is Ending.TAKEN_DOWN:
            why = f"the {self.called} was lost: {outcome.reason}"
            raise Refused(Reason.SESSION_LOST, why) if self._keeps else backend_down(why)
        return outcome

    def close(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.close()


class SandboxedTool(Tool):
    """A tool that has one sandbox for all its sessions, and may hold a process for each."""

    executor = OutOfProcess
    driver: ClassVar[Driver] = Driver.INTERPRETER

    def __init__(self, config: Any = None, sandbox: SandboxConfig | None = None) -> None:
        super().__init__(config)
        self._sandbox = ToolSandbox(sandbox or SandboxConfig(), self.driver)

    async def start(self) -> None:
        await self._sandbox.start()
        self.isolation = str(self._sandbox.level)

    async def stop(self) -> None:
        await self._sandbox.close()

    async def close(self, state: Any) -> None:
        if isinstance(state, HeldProcess):
            state.close()

    def figures(self) -> dict[str, float]:
        return self._sandbox.figures()
