"""The tool `plan`: recommends tools that were made before, and makes them callable.

The caller gives the words of the answer; the found tools stand between `head` and `tail`, one line
each. The answer's author is SYSTEM, with a token budget of its own.

Invariants
- A recommended tool can be called from the next turn on; a tool that cannot be called is not
  recommended.
- A found tool's code runs in the sandbox, a fresh process a call, as if the session had made it.
- If the memory does not answer, the call is refused and may be retried; there is no observation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from toolsvc.errors import Reason, Refused
from toolsvc.plugin.results import invalid
from toolsvc.plugin.tool import STRICT, Cancellation, Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.schemas.validation import BadSchema
from toolsvc.sources.memory.client import MemoryClient, MemoryQuestion, NotAnswered, Remembered
from toolsvc.sources.memory.options import MemoryOptions
from toolsvc.tools.create.create_tool import CreatedTool
from toolsvc.tools.create.request import NotMade, check_name, schema_of
from toolsvc.tools.sandboxed import SandboxedTool
from toolsvc.types import Call, JsonCallFormat, Result, SessionInfo
from toolwright.text.filling import filled
from toolwright.text.schemas import signature
from toolwright.types import Author

LONGEST_DESCRIPTION = 1000
"""Characters of a recommended tool's description that are shown."""
NONE = "none"
"""Value of the session's metadata `memory` for which nothing is recommended."""

VERSIONS = ("memory_version", "memory_before", "memory_iteration")
"""Keys of the session's metadata, at most one of which names the version that is asked."""

_WEIGHTS = re.compile(r"[^\s/]{1,200}\.[0-9]{1,18}")


class PlanArguments(BaseModel):
    """Arguments of `plan`."""

    model_config = STRICT

    queries: list[str] = Field(max_length=64, description="a text for each subtask")
    question: str = Field(default="", description="asked where there are no queries")
    head: str = Field(default="", description="words before the found tools")
    tail: str = Field(default="", description="words after them")
    item: str = Field(default="- {name}({arguments}): {description}\n", description="a found tool")
    empty: str = Field(default="", description="stands where no tool is found")


class _State:
    def __init__(self) -> None:
        self.found: list[Tool] = []
        self.asked = False


class PlanTool(SandboxedTool):
    description = "Finds tools for a plan that were made in earlier tasks."
    arguments = PlanArguments
    format = JsonCallFormat()
    stateful = True

    def __init__(
        self, memory: MemoryClient, options: MemoryOptions, sandbox: SandboxConfig
    ) -> None:
        super().__init__(options, sandbox)
        self.name = options.name
        self._memory = memory

    async def start(self) -> None:
        await self._memory.start()
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        await self._memory.close()

    async def open(self, session: SessionInfo) -> _State:
        return _State()

    async def fork(self, state: _State, session: SessionInfo) -> _State:
        # Found tools keep nothing between calls, so both sessions may have the same ones.
        forked = _State()
        forked.found, forked.asked = list(state.found), state.asked
        return forked

    def session_tools(self, state: _State) -> Sequence[Tool]:
        return state.found

    async def run(self, state: _State, call: Call, cancellation: Cancellation) -> Result:
        asked = PlanArguments.model_validate(call.arguments)
        if state.asked and not self.config.again:
            return invalid("the plan was made before; its tools are there")
        known = call.session.metadata
        found: list[Remembered] = []
        version = 0
        if _recommends(known) and (asked.queries or asked.question):
            try:
                found, version = await self._memory.retrieve(self._question(asked, known))
            except NotAnswered as error:
                return invalid(f"the memory does not take this plan: {error}")
        state.asked = True
        names = {*call.session.names, *(tool.name for tool in state.found)}
        came = list(self._callable(found, names))
        state.found += came
        items = "".join(
            filled(
                asked.item,
                {
                    "name": tool.name,
                    "arguments": signature(tool.schema),
                    "description": tool.description[:LONGEST_DESCRIPTION],
                },
            )
            for tool in came
        )
        return Result.of(
            f"{asked.head}{items or asked.empty}{asked.tail}",
            author=Author.SYSTEM,
            token_budget=self.config.budget,
            metrics={
                "memory_version": float(version),
                "retrieved": float(len(came)),
                "left_out": float(len(found) - len(came)),
            },
        )

    def _question(self, asked: PlanArguments, known: Mapping[str, Any]) -> MemoryQuestion:
        options = self.config
        named = [key for key in VERSIONS if known.get(key) not in (None, "")]
        if len(named) > 1:
            raise Refused(
                Reason.INVALID_REQUEST,
                f"the task's metadata has {' and '.join(named)}: keep one of them",
            )
        return MemoryQuestion(
            queries=asked.queries,
            question=asked.question,
            per_subtask=options.per_subtask,
            in_all=options.in_all,
            scoring=options.scoring,
            text_weight=options.text_weight,
            version=_version(known),
            before_weights=_weights(known),
            iteration=_iteration(known),
        )

    def _callable(self, found: Sequence[Remembered], taken: Collection[str]) -> list[CreatedTool]:
        """Found tools that the session can call; a tool that the session has under the same name
        stays."""
        tools = []
        for one in found:
            try:
                check_name(one.name, taken)
                schema = schema_of(one.schema or {"type": "object", "properties": {}})
                tool = CreatedTool(
                    self._sandbox,
                    self.isolation,
                    name=one.name,
                    description=one.description,
                    returns=one.returns,
                    code=one.code,
                    schema=schema,
                    limit=self.config.timeout,
                )
                tool.matcher  # noqa: B018 - BadSchema now, and not at the first call
            except (NotMade, BadSchema):
                continue
            tools.append(tool)
        return tools


def _recommends(known: Mapping[str, Any]) -> bool:
    word = known.get("memory")
    if word not in (None, NONE):
        raise _unknown("memory", word, f"{NONE!r}, or nothing at all")
    return word is None


def _version(known: Mapping[str, Any]) -> int | None:
    value = known.get("memory_version")
    if value is None or (type(value) is int and 0 <= value < 1 << 63):
        return value
    raise _unknown("memory_version", value, "a version's number")


def _weights(known: Mapping[str, Any]) -> str | None:
    value = known.get("memory_before")
    if value is None or (isinstance(value, str) and _WEIGHTS.fullmatch(value)):
        return value
    raise _unknown("memory_before", value, "LINEAGE.STEP, or '{version}' in a suite's metadata")


def _iteration(known: Mapping[str, Any]) -> str | None:
    """None outside of a run, where '{iteration}' is empty: the newest version answers."""
    value = known.get("memory_iteration")
    if value in (None, ""):
        return None
    if isinstance(value, str) and _WEIGHTS.fullmatch(value):
        return value
    raise _unknown("memory_iteration", value, "RUN.STEP, or '{iteration}' in the recipe's metadata")


def _unknown(key: str, value: Any, fix: str) -> Refused:
    """The error for an unknown value: with a default instead, an evaluation would measure something
    else."""
    return Refused(
        Reason.INVALID_REQUEST, f"the task's metadata has {key} = {value!r:.80}: write {fix}"
    )
