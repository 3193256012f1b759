"""`python`: Python code in a confined process, whose variables live from call to call, or in a
fresh one for each call.

Owns how the action's text becomes code and how an outcome becomes an observation. A process is
taken from the sandbox when a call needs one: many trajectories open a session and never use it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, Field

from toolsvc.errors import Reason, Refused, backend_down
from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.tool import STRICT, Cancellation
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sandbox.jailed.drivers.terminal import as_shown
from toolsvc.sandbox.session import Ending, Outcome, SandboxSession
from toolsvc.tools.replaying import Journal
from toolsvc.tools.sandboxed import KINDS, SandboxedTool
from toolsvc.types import (
    ActionFormat,
    Call,
    RawFormat,
    Result,
    SessionInfo,
    TagFormat,
    Text,
    ToolError,
)
from toolwright.reading.actions import python_blocks

_DOES = "Runs Python and returns what it prints and the value of its last expression."
_LIVES_ON = "Variables, imports and files live on until the session ends."
_BEGINS_ANEW = "Every call begins anew: no variable, import or file is kept."


class Mode(StrEnum):
    SESSION = "session"
    """One process a session: variables, imports and files live on."""
    STATELESS = "stateless"
    """One process a call: nothing lives on."""


class Format(StrEnum):
    TAGS = "tags"
    """`<python> code </python>`."""
    FENCED = "fenced"
    """Blocks fenced by ```python, ```python3 or ```py; all blocks of an action are one program."""


class PythonOptions(BaseModel):
    """What an operator may set about `python`."""

    model_config = STRICT

    mode: Mode = Field(
        default=Mode.SESSION,
        description="session: variables live from call to call; stateless: a fresh process a call",
    )
    format: Format = Field(
        default=Format.TAGS,
        description="how code is marked: tags = <python>, fenced = ```python blocks, all joined",
    )
    preload: tuple[str, ...] = Field(
        default=(), description='modules imported beforehand, such as ["numpy", "sympy"]'
    )
    packages: tuple[str, ...] = Field(
        default=(), description="folders of third-party packages that the code may import"
    )
    output_kib: int = Field(
        default=1024, ge=1, description="output of one call that is looked at; the rest is dropped"
    )


class _State:
    """A session's process, once it has one, and what it ran."""

    __slots__ = ("journal", "process")

    def __init__(self, journal: Journal | None = None) -> None:
        self.process: SandboxSession | None = None
        self.journal = journal or Journal()


class PythonTool(SandboxedTool):
    Options = PythonOptions
    name = "python"
    description = f"{_DOES} {_LIVES_ON}"
    run_limit = 10.0

    def __init__(self, sandbox: SandboxConfig, options: PythonOptions | None = None) -> None:
        options = options or PythonOptions()
        super().__init__(
            replace(
                sandbox,
                preload=(*sandbox.preload, *options.preload),
                packages=(*sandbox.packages, *options.packages),
            )
        )
        self._output_bytes = options.output_kib * 1024
        self._fenced = options.format is Format.FENCED
        self.stateful = self.fork_replays = options.mode is Mode.SESSION
        self.description = f"{_DOES} {_LIVES_ON if self.stateful else _BEGINS_ANEW}"
        self.usage = f"{_FENCED_EXAMPLE if self._fenced else _TAGS_EXAMPLE}\n{self.description}"
        self.format: ActionFormat = _TAGS
        if self._fenced:
            self.format, self.stop_strings = RawFormat(), ("```output",)

    @classmethod
    def make(cls, options: PythonOptions, sandbox: SandboxConfig) -> Self:
        return cls(sandbox, options)

    async def open(self, session: SessionInfo) -> _State:
        return _State()

    async def fork(self, state: _State, session: SessionInfo) -> _State:
        if state.process is not None and state.process.gone is not None:
            raise Refused(Reason.SESSION_LOST, f"the Python session was lost: {state.process.gone}")
        if state.journal.empty:
            return _State()
        forked = _State(state.journal.copy())
        forked.process = await self._sandbox.take()
        try:
            await forked.journal.replay(forked.process, keep=self._output_bytes)
        except BaseException:
            _end(forked)
            raise
        return forked

    async def close(self, state: _State) -> None:
        _end(state)

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        found = super().check(arguments)
        return {"code": fenced_code(found["action"]) if self._fenced else plain_code(found["code"])}

    def lost(self, state: _State) -> str | None:
        # One that its own code ended says so in its answers.
        return state.process.taken_down if self.stateful and state.process is not None else None

    def ready(self, state: _State) -> bool:
        return state.process is not None

    async def prepare(self, state: _State) -> None:
        state.process = await self._sandbox.take()

    async def run(self, state: _State, call: Call, cancellation: Cancellation) -> Result:
        process = state.process
        if process is None:
            raise RuntimeError("run before prepare")
        cancellation.on_request(process.cancel)
        try:
            outcome = await process.run(
                call.arguments["code"], limit=call.run_limit, keep=self._output_bytes
            )
        finally:
            if not self.stateful:
                _end(state)
        if outcome.ending is Ending.TAKEN_DOWN:
            # Not the code's doing, so nothing that the policy should read.
            raise self._taken_away(outcome.reason)
        if self.stateful:
            state.journal.add(call.arguments["code"], outcome)
        return as_result(outcome, call.run_limit, stateful=self.stateful)

    def _taken_away(self, reason: str) -> Refused:
        """The process went through no fault of the code."""
        if self.stateful:
            return Refused(Reason.SESSION_LOST, f"the Python session was lost: {reason}")
        return backend_down(f"the Python process was lost: {reason}")


def _end(state: _State) -> None:
    process, state.process = state.process, None
    if process is not None:
        process.close()


_TAGS = TagFormat(open="<python>", close="</python>", argument="code")
_TAGS_EXAMPLE = "<python> code </python>"
_FENCED_EXAMPLE = "```python\ncode\n```"
_INDENTATIONS = re.compile(r"^[ \t]*(?=[^ \t\r\n])", re.MULTILINE)


def plain_code(body: str) -> str:
    """The code between the tags: indentation that all lines share, or only the first one has
    (`<python> x = 1`), is taken off. Lines of blanks stay, for a string may hold them."""
    code = body.strip("\r\n").rstrip()
    shared = os.path.commonprefix(_INDENTATIONS.findall(code))  # noqa: RUF071 - no paths
    if shared:
        code = "\n".join(line.removeprefix(shared) for line in code.split("\n"))
    return code.lstrip() if code[:1] in (" ", "\t") else code


def fenced_code(action: str) -> str:
    """The code of all the action's blocks, in order. InvalidAction if it has none."""
    blocks = [plain_code(block) for block in python_blocks(action)]
    if not blocks:
        raise InvalidAction("the action has no block of code between ```python and ```")
    return "\n".join(blocks)


def as_result(outcome: Outcome, run_limit: float, *, stateful: bool) -> Result:
    """What the policy reads: the output, and one line more where the output cannot tell."""
    output = as_shown(outcome.output).rstrip()
    if outcome.ending is Ending.OK:
        return Result(observation=(Text(text=output),), truncated=outcome.truncated)
    message = _message(outcome, output, run_limit, stateful)
    told_by_output = outcome.ending is Ending.EXCEPTION or (
        outcome.ending is Ending.OUT_OF_MEMORY and not outcome.lost
    )
    if not told_by_output:
        output = f"{output}\n{message}".lstrip("\n")
    error = ToolError(
        kind=KINDS[outcome.ending], message=message, session_lost=outcome.lost and stateful
    )
    return Result(observation=(Text(text=output),), error=error, truncated=outcome.truncated)


def _message(outcome: Outcome, output: str, run_limit: float, stateful: bool) -> str:
    if outcome.ending is Ending.TIMEOUT:
        told = f"TimeoutError: stopped after {run_limit:g} s"
    elif outcome.ending is Ending.CANCELLED:
        told = "Cancelled"
    elif not outcome.lost:
        return output.rpartition("\n")[2] or outcome.ending.value
    else:
        told = f"{'SessionLost' if stateful else 'Crashed'}: {outcome.reason}"
    if not stateful:
        return told
    if not outcome.lost:
        return f"{told}; variables are kept"
    why = f"; {outcome.reason}" if outcome.reason not in told else ""
    return f"{told}{why}; the session and its variables are lost"
