"""One program in one fresh process of the sandbox, and what it told."""

from __future__ import annotations

import inspect
import json
import secrets
from collections.abc import Mapping
from typing import Any

from toolsvc.errors import backend_down
from toolsvc.plugin.tool import Cancellation
from toolsvc.sandbox.session import Ending, SandboxSession
from toolsvc.tools.create import inside
from toolsvc.tools.sandboxed import KINDS, ToolSandbox
from toolwright.reading.tool_arguments import MOST_ARGUMENTS
from toolwright.types import ToolErrorKind

_SOURCE = inspect.getsource(inside)
_KEPT = 1 << 20
"""Bytes of the output that are looked at: the longest result with all its escapes fits in."""


class ProgramFailed(Exception):
    """The program did not end by itself, or told nothing."""

    def __init__(self, kind: ToolErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class FreshProcess:
    """Of one call at a time: taken before its run limit begins, closed after it."""

    def __init__(self, sandbox: ToolSandbox) -> None:
        self._sandbox = sandbox
        self._process: SandboxSession | None = None

    @property
    def ready(self) -> bool:
        return self._process is not None

    async def prepare(self) -> None:
        """Refused if no process can be had."""
        self._process = await self._sandbox.take()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close()

    async def work(
        self, job: Mapping[str, Any], limit: float, cancellation: Cancellation
    ) -> dict[str, Any]:
        """What `inside.work` told of the job. ProgramFailed where it told nothing; Refused where
        that is nobody's fault."""
        process = self._process
        if process is None:
            raise RuntimeError("work before prepare")
        cancellation.on_request(process.cancel)
        mark = secrets.token_hex(8)
        program = f"{_SOURCE}\nprint('\\n{mark}' + work(json.loads({json.dumps(job)!r})))\n"
        try:
            outcome = await process.run(program, limit=limit, keep=_KEPT)
        finally:
            self.close()
        if outcome.ending is Ending.TAKEN_DOWN:
            raise backend_down(f"the sandbox's process was lost: {outcome.reason}")
        _, marked, told = outcome.output.rpartition(mark)
        if outcome.ending is Ending.OK and marked:
            return _read(told)
        raise ProgramFailed(
            KINDS[outcome.ending] or ToolErrorKind.EXCEPTION,
            f"TimeoutError: stopped after {limit:g} s"
            if outcome.ending is Ending.TIMEOUT
            else outcome.reason or f"the code ended by {outcome.ending.value}",
        )


def _are_names(found: Any) -> bool:
    """Whether the code told names of arguments, in a number that a schema may have."""
    if not isinstance(found, list) or len(found) > MOST_ARGUMENTS:
        return False
    return all(isinstance(one, str) and one.isidentifier() and len(one) <= 64 for one in found)


def _read(told: str) -> dict[str, Any]:
    try:
        found = json.loads(told)
    except (ValueError, RecursionError):
        found = None
    if (
        not isinstance(found, dict)
        or not isinstance(found.get("required", []), list)
        or not _are_names(found.setdefault("accepted", []))
    ):
        raise ProgramFailed(ToolErrorKind.EXCEPTION, "the code spoilt its own result")
    return found
