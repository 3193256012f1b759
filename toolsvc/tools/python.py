"""`python`: one interpreter a session, confined, whose variables live from call to call.

Owns how the action's text becomes code and how an outcome becomes an observation. The process
behind a session is taken from the sandbox at the first call: many trajectories open a session
and never use it.
"""

from __future__ import annotations

import textwrap
from typing import Self

from pydantic import BaseModel, Field

from toolsvc.built_in import BuiltIn
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sandbox.errors import SandboxDown, SandboxUnavailable, SessionGone
from toolsvc.sandbox.sandbox import Sandbox
from toolsvc.sandbox.session import Ending, Outcome, Session
from toolsvc.tool import STRICT, Cancellation
from toolsvc.types import Call, Result, SessionInfo, TagFormat, Text, ToolError
from toolwright.types import ToolErrorKind

_RETRY_SECONDS = 1.0


class _Interpreter:
    """A session's state: its process, once it has one, and why it is lost."""

    __slots__ = ("lost", "process")

    def __init__(self) -> None:
        self.process: Session | None = None
        self.lost: str | None = None


class PythonOptions(BaseModel):
    """What an operator may set about `python`."""

    model_config = STRICT

    output_kib: int = Field(default=64, ge=1, description="kept output of one call")


class PythonTool(BuiltIn):
    Options = PythonOptions
    name = "python"
    description = (
        "Runs Python and returns what it prints and the value of its last expression. "
        "Variables, imports and files live on until the session ends."
    )
    usage = "<python> code </python>\n" + description
    format = TagFormat(open="<python>", close="</python>", argument="code")
    stateful = True
    run_limit = 10.0

    def __init__(self, sandbox: SandboxConfig, *, output_bytes: int = 64 * 1024) -> None:
        """`output_bytes`: of one call; what is printed beyond is dropped and said to be."""
        self._sandbox = Sandbox(sandbox)
        self._output_bytes = output_bytes

    @classmethod
    def make(cls, options: PythonOptions, sandbox: SandboxConfig) -> Self:
        return cls(sandbox, output_bytes=options.output_kib * 1024)

    async def start(self) -> None:
        try:
            await self._sandbox.start()
        except SandboxUnavailable as error:
            raise StartError(str(error)) from error
        self.isolation = str(self._sandbox.level)

    async def stop(self) -> None:
        await self._sandbox.close()

    async def open(self, session: SessionInfo) -> _Interpreter:
        return _Interpreter()

    async def close(self, state: _Interpreter) -> None:
        if state.process is not None:
            state.process.close()

    def lost(self, state: _Interpreter) -> str | None:
        if state.lost is None and state.process is not None:
            state.lost = state.process.gone
        return state.lost

    def ready(self, state: _Interpreter) -> bool:
        return state.process is not None

    async def prepare(self, state: _Interpreter) -> None:
        try:
            state.process = await self._sandbox.take()
        except SandboxDown as error:
            raise Refused(
                Reason.BACKEND_DOWN, f"no sandbox: {error}", retry_after=_RETRY_SECONDS
            ) from error

    async def run(self, state: _Interpreter, call: Call, cancellation: Cancellation) -> Result:
        process = state.process
        if process is None:
            raise RuntimeError("run before prepare")
        cancellation.on_request(process.cancel)
        try:
            outcome = await process.run(
                plain_code(call.arguments["code"]), limit=call.run_limit, keep=self._output_bytes
            )
        except SessionGone as error:
            state.lost = str(error)
            raise Refused(Reason.SESSION_LOST, f"the Python session was lost: {error}") from error
        if outcome.lost:
            state.lost = outcome.reason
        if outcome.ending is Ending.TAKEN_DOWN:
            # Not the code's doing, so nothing that the policy should read.
            raise Refused(Reason.SESSION_LOST, f"the Python session was lost: {outcome.reason}")
        return as_result(outcome, call.run_limit)


def plain_code(body: str) -> str:
    """The code between the tags: indentation that all lines share, or only the first one has
    (`<python> x = 1`), is taken off."""
    code = textwrap.dedent(body.strip("\r\n")).rstrip()
    return code.lstrip() if code[:1] in (" ", "\t") else code


_KINDS = {
    Ending.EXCEPTION: ToolErrorKind.EXCEPTION,
    Ending.TIMEOUT: ToolErrorKind.TIMEOUT,
    Ending.CANCELLED: ToolErrorKind.CANCELLED,
    Ending.OUT_OF_MEMORY: ToolErrorKind.OUT_OF_MEMORY,
    Ending.LIMIT: ToolErrorKind.LIMIT,
    Ending.CRASHED: ToolErrorKind.CRASHED,
}


def as_result(outcome: Outcome, run_limit: float) -> Result:
    """What the policy reads: the output, and one line more where the output cannot tell."""
    output = outcome.output.rstrip()
    if outcome.ending is Ending.OK:
        return Result(observation=(Text(text=output),), truncated=outcome.truncated)
    message = _message(outcome, output, run_limit)
    told_by_output = outcome.ending is Ending.EXCEPTION or (
        outcome.ending is Ending.OUT_OF_MEMORY and not outcome.lost
    )
    if not told_by_output:
        output = f"{output}\n{message}".lstrip("\n")
    error = ToolError(kind=_KINDS[outcome.ending], message=message, session_lost=outcome.lost)
    return Result(observation=(Text(text=output),), error=error, truncated=outcome.truncated)


def _message(outcome: Outcome, output: str, run_limit: float) -> str:
    gone = "the session and its variables are lost"
    if outcome.ending is Ending.TIMEOUT:
        stopped = f"TimeoutError: stopped after {run_limit:g} s"
    elif outcome.ending is Ending.CANCELLED:
        stopped = "Cancelled"
    elif outcome.lost:
        return f"SessionLost: {outcome.reason}; {gone}"
    else:
        return output.rpartition("\n")[2] or outcome.ending.value
    if outcome.lost:
        return f"{stopped}; {outcome.reason}; {gone}"
    return f"{stopped}; variables are kept"
