"""A tool that a model plays, and the tools that a model makes for one session."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolsvc.backends.cache import cache_key
from toolsvc.backends.chat_model import PromptTooLong
from toolsvc.errors import Reason, Refused
from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.results import ToolFailed, failure
from toolsvc.plugin.tool import Tool
from toolsvc.plugin.waiting import waiting
from toolsvc.schemas.functions import FunctionTool, function_tools
from toolsvc.schemas.schema_tool import SchemaTool
from toolsvc.sources.simulated import actor, maker
from toolsvc.sources.simulated.actor import EarlierCall
from toolsvc.sources.simulated.asking import Manner, Unfit
from toolsvc.sources.simulated.cast import Cast, Trace
from toolsvc.types import Call, Descriptor, Result, SessionInfo
from toolwright.types import ToolErrorKind

LONGEST_ARGUMENTS = 16_384
"""Characters: what is longer is a part of no question that a model is asked."""


TOOLS, OFF = "tools", "off"
"""Key and value of the metadata of a task for which no tools are made."""


class SimulatedTool(SchemaTool):
    parallel_calls = True

    def __init__(self, cast: Cast, function: FunctionTool) -> None:
        self._cast = cast
        self._function = function
        self.name = function.name
        self.description = function.description
        self.schema = function.parameters
        self.output_schema = function.returns
        self.run_limit = cast.options.run_limit

    async def start(self) -> None:
        await self._cast.start()

    async def stop(self) -> None:
        await self._cast.stop()

    def figures(self) -> Mapping[str, float]:
        return self._cast.figures()

    async def open(self, session: SessionInfo) -> Trace:
        return self._cast.traces.of(session)

    def forks(self) -> bool:
        """False: a tool must stay consistent with its earlier answers, which are kept for one
        session."""
        return False

    def parse(self, action: str, descriptor: Descriptor) -> dict[str, Any]:
        try:
            return super().parse(action, descriptor)
        except InvalidAction as error:
            told = {"type": "parse_error", "tool": self.name, "message": str(error)}
            raise InvalidAction(_error(told)) from error

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """The pre-check."""
        if not self._cast.options.pre_check:
            return
        found = [one.as_json() for one in self.matcher.violations(arguments)]
        if len(json.dumps(arguments)) > LONGEST_ARGUMENTS:
            told = f"{LONGEST_ARGUMENTS} characters"
            found.append({"path": "$", "rule": "maxLength", "expected": told})
        if found:
            raise InvalidAction(_validation_error("pre", self.name, found))

    async def call(self, state: Trace, call: Call) -> Result:
        try:
            text = await self._observation(state, call.arguments)
        except Unfit as error:
            told = _validation_error("post", self.name, error.faults)
            return failure(
                ToolErrorKind.EXCEPTION, f"{self.name} gave no answer that fits its schema", told
            )
        except PromptTooLong as error:
            raise ToolFailed(f"{self.name} cannot read so much: call it with less") from error
        state.append(EarlierCall(self.name, call.arguments, text))
        return Result.of(text)

    async def _observation(self, state: Trace, arguments: Mapping[str, Any]) -> str:
        cast, options = self._cast, self._cast.options

        async def ask(manner: Manner) -> str:
            return await actor.observe(
                cast.actor,
                self._function,
                arguments,
                tuple(state),
                manner,
                role=cast.actor_role,
                post_check=options.post_check,
                constrained=options.constrained,
            )

        model = f"model {options.model}"
        if not options.consistent:
            # Seeds of its own, for equal requests in flight would be one.
            manner = replace(cast.manner, seed=cast.next_seed())
            with waiting(model):
                return await ask(manner)
        schema = self._function.as_json()
        how = (options.seed, options.post_check, options.constrained)
        own = _own(cast.actor_role, actor.ROLE)
        key = cache_key("toolactor", options.model, schema, dict(arguments), *how, *own)
        with waiting(model):  # Or for an equal call, which is asking already.
            return await cast.world.fact(key, lambda: ask(cast.manner))


class MadeTools(Tool):
    """Gives every session the tools that a model makes from its question. It gives no tools and
    asks no model where the task's metadata say that its tools are off."""

    name = "simulated"
    callable = False

    def __init__(self, cast: Cast) -> None:
        self._cast = cast

    async def start(self) -> None:
        await self._cast.start()

    async def stop(self) -> None:
        await self._cast.stop()

    def figures(self) -> Mapping[str, float]:
        return self._cast.figures()

    async def open(self, session: SessionInfo) -> list[Tool]:
        if session.metadata.get(TOOLS) == OFF:
            return []
        cast, options = self._cast, self._cast.options
        question = session.metadata.get(options.question)
        if not isinstance(question, str) or not question.strip():
            raise Refused(
                Reason.INVALID_REQUEST,
                f"the task's metadata have no {options.question!r}, from which its tools are made",
                subject=options.question,
                fix="put the question there, or name its key by simulated.question",
            )
        taken = sorted(session.names)
        model = (options.maker or options).model
        how = (options.seed, options.constrained_tools)
        own = _own(cast.maker_role, maker.ROLE)
        key = cache_key("toolmaker", model, question, taken, *how, *own)
        try:
            with waiting(f"model {model}"):  # Or for an equal question, which is asked already.
                made = await cast.world.fact(
                    key,
                    lambda: maker.make(
                        cast.maker,
                        question,
                        taken,
                        cast.manner,
                        cast.schema_changes,
                        role=cast.maker_role,
                        constrained=options.constrained_tools,
                    ),
                )
        except Unfit as error:
            raise Refused(
                Reason.BACKEND_DOWN,
                f"model {model} made no tools that may be used: {error}",
                fix="take a better model for simulated.maker, or raise simulated.max_tokens",
            ) from error
        return [SimulatedTool(cast, function) for function in function_tools(json.loads(made))]

    def session_tools(self, state: list[Tool]) -> Sequence[Tool]:
        return state


def _own(role: str, default: str) -> tuple[str, ...]:
    """The part of a fact's key that a prompt of the operator's adds."""
    return () if role == default else (role,)


def _validation_error(stage: str, tool: str, found: Sequence[Mapping[str, str]]) -> str:
    return _error(
        {"type": "validation_error", "stage": stage, "tool": tool, "violations": list(found)}
    )


def _error(error: Mapping[str, Any]) -> str:
    return json.dumps({"status": "error", "error": error}, ensure_ascii=False)
