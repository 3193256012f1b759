"""`create_and_execute`: Python that the policy writes becomes a tool of its trajectory.

Invariants
- The code runs in the sandbox and nowhere else, in a fresh process a call: no state is kept.
- A tool exists only after its first call has worked. The policy reads every fault of a tool, and
  the trajectory goes on.
- A made tool belongs to its session and ends with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.results import failure, invalid
from toolsvc.plugin.tool import STRICT, Cancellation, OutOfProcess, Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.schemas.schema_tool import SchemaTool
from toolsvc.tools.create.process import FreshProcess, ProgramFailed
from toolsvc.tools.create.request import (
    Arguments,
    NotMade,
    check_count,
    check_name,
    schema_of,
    schema_of_words,
    words_of,
)
from toolsvc.tools.sandboxed import SandboxedTool, ToolSandbox
from toolsvc.types import Call, JsonCallFormat, Result, SessionInfo
from toolwright.types import ToolErrorKind


class CreateOptions(BaseModel):
    model_config = STRICT

    name: str = Field(
        default="create_and_execute",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$",
        description="of the tool; SEARL's listing 1 calls it create_and_execute_mcp",
    )
    most: int = Field(default=16, ge=1, description="tools that one session may make")
    timeout: float = Field(default=15.0, gt=0, description="seconds of a call of such a tool")


class _State(FreshProcess):
    """A session's process for the next call, and the tools that it has made."""

    def __init__(self, sandbox: ToolSandbox) -> None:
        super().__init__(sandbox)
        self.made: list[CreatedTool] = []


class CreateTool(SandboxedTool):
    Config = CreateOptions
    name = "create_and_execute"
    description = (
        "Makes a new tool of Python code and calls it once with `inputs`. If that works, the tool "
        "can be called by its name from the next turn on. Every call begins anew: the code has to "
        "import what it needs, and keeps nothing."
    )
    arguments = Arguments
    format = JsonCallFormat()
    stateful = True

    def __init__(
        self, config: CreateOptions | None = None, sandbox: SandboxConfig | None = None
    ) -> None:
        super().__init__(config, sandbox)
        self.name = self.config.name
        self.run_limit = self.config.timeout

    async def open(self, session: SessionInfo) -> _State:
        return _State(self._sandbox)

    def make_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return super().make_arguments(arguments)
        except InvalidAction as error:
            raise InvalidAction(_told(str(error))) from error

    def session_tools(self, state: _State) -> Sequence[Tool]:
        return state.made

    async def fork(self, state: _State, session: SessionInfo) -> _State:
        # Made tools keep nothing between calls, so both sessions may have the same ones.
        forked = _State(self._sandbox)
        forked.made = list(state.made)
        return forked

    async def run(self, state: _State, call: Call, cancellation: Cancellation) -> Result:
        asked = Arguments.model_validate(call.arguments)
        known = next((tool for tool in state.made if asked.name == tool.name), None)
        if known is not None and known.same(asked):
            return await self._called(state, known, asked, call, cancellation)
        try:
            check_name(asked.name, call.session.names)
            words = words_of(asked.arguments)
            schema = schema_of(asked.arguments) if words is None else None
            check_count(len(state.made), self.config.most)
        except NotMade as error:
            return invalid(_told(str(error)))
        limit = min(asked.timeout or call.run_limit, call.run_limit)
        names = None if schema is None else list(schema["properties"])
        found = await _tried(state, asked, names, limit, cancellation)
        if isinstance(found, Result):
            return found
        if schema is None:
            schema = schema_of_words(words or "", found["accepted"], asked.inputs)
        # Whatever was told, only what is described can be required.
        needed = set(map(str, found.get("required", ())))
        schema.setdefault("required", [name for name in schema["properties"] if name in needed])
        made = CreatedTool(
            self._sandbox,
            self.isolation,
            name=asked.name,
            description=asked.description,
            returns=asked.returns,
            code=asked.code,
            schema=schema,
            limit=limit,
        )
        state.made.append(made)
        return Result.of(_told("", found))

    async def _called(
        self,
        state: _State,
        known: CreatedTool,
        asked: Arguments,
        call: Call,
        cancellation: Cancellation,
    ) -> Result:
        """A tool that is made again, word for word, is called."""
        names = list(known.schema["properties"])
        limit = min(known.run_limit, call.run_limit)
        found = await _tried(state, asked, names, limit, cancellation)
        return found if isinstance(found, Result) else Result.of(_told("", found))


class CreatedTool(SchemaTool):
    """A tool that a policy has made, in this session or in an earlier one."""

    executor = OutOfProcess

    def __init__(
        self,
        sandbox: ToolSandbox,
        isolation: str,
        *,
        name: str,
        description: str,
        returns: str,
        code: str,
        schema: Mapping[str, Any],
        limit: float,
    ) -> None:
        """code: defines a function `name`. schema: of its arguments. limit: seconds of a call."""
        self._sandbox = sandbox
        self._code = code
        self._told = description
        self.schema = schema
        self.name = name
        self.isolation = isolation
        self.run_limit = limit
        self.description = f"{description} Returns {returns}" if returns else description

    def same(self, asked: Arguments) -> bool:
        """Whether what is asked for is this tool, word for word."""
        return (asked.code, asked.description) == (self._code, self._told)

    async def open(self, session: SessionInfo) -> FreshProcess:
        return FreshProcess(self._sandbox)

    async def close(self, state: FreshProcess) -> None:
        state.close()

    async def run(self, state: FreshProcess, call: Call, cancellation: Cancellation) -> Result:
        job = {
            "name": self.name,
            "code": self._code,
            "properties": list(self.schema["properties"]),
            "inputs": dict(call.arguments),
        }
        try:
            found = await state.work(job, min(self.run_limit, call.run_limit), cancellation)
        except ProgramFailed as error:
            return failure(error.kind, str(error))
        shown = {"execution_result": found.get("result"), **_printed(found)}
        if "error" in found:
            reason = str(found["error"])
            text = json.dumps({**shown, "error": reason}, ensure_ascii=False)
            return failure(ToolErrorKind.EXCEPTION, reason, text)
        return Result.of(json.dumps(shown, ensure_ascii=False))


async def _tried(
    state: _State,
    asked: Arguments,
    properties: Sequence[str] | None,
    limit: float,
    cancellation: Cancellation,
) -> dict[str, Any] | Result:
    """Report of the first call, or the failure that the policy reads. properties: described names;
    None where words describe them, which never contradict the function."""
    job = {
        "name": asked.name,
        "code": asked.code,
        "properties": properties,
        "inputs": asked.inputs,
    }
    try:
        found = await state.work(job, limit, cancellation)
    except ProgramFailed as error:
        return failure(error.kind, str(error), _told(str(error)))
    if "error" in found:
        reason = str(found["error"])
        return failure(ToolErrorKind.EXCEPTION, reason, _told(reason, found))
    return found


def _told(error: str, found: Mapping[str, Any] | None = None) -> str:
    """What the policy reads of a creation; `error` is "" where it worked."""
    found = found or {}
    shown: dict[str, Any] = {
        "creation_success": not error,
        "execution_result": found.get("result"),
        **_printed(found),
    }
    if error:
        shown["error"] = error
    return json.dumps(shown, ensure_ascii=False)


def _printed(found: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(found.get(name, "")) for name in ("stdout", "stderr")}
