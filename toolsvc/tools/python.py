"""`python`: Python code in a confined process, whose variables live from call to call, or in a
fresh one for each call.

Owns how the action's text becomes code and how an outcome becomes an observation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from toolsvc.errors import Reason, Refused
from toolsvc.plugin.actions import RAW, InvalidAction
from toolsvc.plugin.tool import STRICT, Cancellation
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sandbox.jailed.drivers.terminal import as_shown
from toolsvc.sandbox.session import Ending, Outcome
from toolsvc.tools.replaying import Journal
from toolsvc.tools.sandboxed import KINDS, HeldProcess, SandboxedTool
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
    """Options of `python`."""

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


class _State(HeldProcess):
    """A session's process, and what ran in it."""

    def __init__(self, tool: PythonTool, journal: Journal | None = None) -> None:
        super().__init__(tool._sandbox, keeps=tool.stateful)
        self.called = "Python session" if tool.stateful else "Python process"
        self.journal = journal or Journal()


class PythonTool(SandboxedTool):
    Config = PythonOptions
    name = "python"
    description = f"{_DOES} {_LIVES_ON}"
    run_limit = 10.0

    def __init__(
        self, config: PythonOptions | None = None, sandbox: SandboxConfig | None = None
    ) -> None:
        config, sandbox = config or PythonOptions(), sandbox or SandboxConfig()
        super().__init__(
            config,
            replace(
                sandbox,
                preload=(*sandbox.preload, *config.preload),
                packages=(*sandbox.packages, *config.packages),
            ),
        )
        self._output_bytes = config.output_kib * 1024
        self._fenced = config.format is Format.FENCED
        self.stateful = self.fork_replays = config.mode is Mode.SESSION
        self.description = f"{_DOES} {_LIVES_ON if self.stateful else _BEGINS_ANEW}"
        self.usage = f"{_FENCED_EXAMPLE if self._fenced else _TAGS_EXAMPLE}\n{self.description}"
        self.format: ActionFormat = _TAGS
        if self._fenced:
            self.format, self.stop_strings = RawFormat(), ("```output",)

    async def open(self, session: SessionInfo) -> _State:
        return _State(self)

    async def fork(self, state: _State, session: SessionInfo) -> _State:
        if state.process is not None and state.process.gone is not None:
            raise Refused(Reason.SESSION_LOST, f"the Python session was lost: {state.process.gone}")
        if state.journal.empty:
            return _State(self)
        forked = _State(self, state.journal.copy())
        process = forked.process = await self._sandbox.take()
        try:
            await forked.journal.replay(process, keep=self._output_bytes)
        except BaseException:
            forked.close()
            raise
        return forked

    def make_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        found = super().make_arguments(arguments)
        return {"code": fenced_code(found[RAW]) if self._fenced else plain_code(found["code"])}

    async def run(self, state: _State, call: Call, cancellation: Cancellation) -> Result:
        code, limit = call.arguments["code"], call.run_limit
        try:
            outcome = await state.run(code, cancellation, limit=limit, keep=self._output_bytes)
        finally:
            if not self.stateful:
                state.close()
        if self.stateful:
            state.journal.add(code, outcome)
        return as_result(outcome, limit, stateful=self.stateful)


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
    """The code of all the action's blocks, in order. Raises InvalidAction if it has none."""
    blocks = [plain_code(block) for block in python_blocks(action)]
    if not blocks:
        raise InvalidAction("the action has no block of code between ```python and ```")
    return "\n".join(blocks)


def as_result(outcome: Outcome, run_limit: float, *, stateful: bool) -> Result:
    """Text for the policy: the output, and one more line for facts that the output does not
    show."""
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
