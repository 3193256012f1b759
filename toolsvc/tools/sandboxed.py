"""The sandbox as tools use it: its failures in the service's words, its endings in the contract's.

`python`, `bash` and `sql` differ in what their processes run and in what the policy reads of it.
"""

from __future__ import annotations

import json
from typing import Any

from toolsvc.errors import StartError, backend_down
from toolsvc.plugin.built_in import BuiltIn
from toolsvc.sandbox.config import Driver, SandboxConfig
from toolsvc.sandbox.errors import SandboxError, SandboxUnavailable
from toolsvc.sandbox.sandbox import Sandbox
from toolsvc.sandbox.session import Ending, SandboxSession
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
"""TAKEN_DOWN is not here: it is nothing that the policy should read."""


def shell_report(line: str) -> dict[str, Any]:
    """The last line of what `Driver.SHELL` answers. Not trusted: what took the driver over may have
    written anything."""
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
        """StartError where no level of isolation holds."""
        try:
            await super().start()
        except SandboxUnavailable as error:
            raise StartError(str(error)) from error

    async def take(self) -> SandboxSession:
        """A fresh confined session, which the caller must close. Refused if none can be had."""
        try:
            return await super().take()
        except SandboxError as error:
            raise backend_down(f"no sandbox: {error}") from error


class SandboxedTool(BuiltIn):
    """A tool that has one sandbox for all its sessions."""

    def __init__(self, sandbox: SandboxConfig, driver: Driver = Driver.INTERPRETER) -> None:
        self._sandbox = ToolSandbox(sandbox, driver)

    async def start(self) -> None:
        await self._sandbox.start()
        self.isolation = str(self._sandbox.level)

    async def stop(self) -> None:
        await self._sandbox.close()

    def figures(self) -> dict[str, float]:
        return self._sandbox.figures()
