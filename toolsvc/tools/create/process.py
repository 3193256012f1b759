"""One program in one fresh process of the sandbox, and its report."""

from __future__ import annotations

import inspect
import json
import secrets
from collections.abc import Mapping
from typing import Any

from toolsvc.plugin.tool import Cancellation
from toolsvc.sandbox.session import Ending
from toolsvc.tools.create import inside
from toolsvc.tools.sandboxed import KINDS, HeldProcess, ToolSandbox
from toolwright.reading.tool_arguments import MOST_ARGUMENTS
from toolwright.types import ToolErrorKind

_SOURCE = inspect.getsource(inside)
_KEPT = 1 << 20
"""Bytes of the output that are read: the longest result with all its escapes fits."""


class ProgramFailed(Exception):
    """The program did not end by itself, or reported nothing."""

    def __init__(self, kind: ToolErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class FreshProcess(HeldProcess):
    """A process of one call: taken before its run limit begins, closed after it."""

    called = "sandbox's process"

    def __init__(self, sandbox: ToolSandbox) -> None:
        super().__init__(sandbox, keeps=False)

    async def work(
        self, job: Mapping[str, Any], limit: float, cancellation: Cancellation
    ) -> dict[str, Any]:
        """What `inside.work` reported of the job. Raises ProgramFailed if it reported nothing, and
        Refused if the process was taken away."""
        mark = secrets.token_hex(8)
        program = f"{_SOURCE}\nprint('\\n{mark}' + work(json.loads({json.dumps(job)!r})))\n"
        try:
            outcome = await self.run(program, cancellation, limit=limit, keep=_KEPT)
        finally:
            self.close()
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
