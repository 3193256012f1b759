"""`act`: one action in the episode that a session plays, in a process of the sandbox.

Invariants
- The environment runs in the sandbox and nowhere else. The policy's action is data for it.
- Equal seeds and equal actions make equal episodes, if the environment depends on its seed alone.
- An episode is lost with an action that was stopped, raised or reported nothing; no call plays in a
  half-made step.
"""

from __future__ import annotations

import inspect
import json
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field

from toolsvc.errors import Reason, Refused, StartError, backend_down
from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.results import invalid
from toolsvc.plugin.tool import STRICT, Cancellation
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sandbox.session import Ending, Outcome, SandboxSession
from toolsvc.sources.episodes import LOOK, EpisodeTask, look, task_of
from toolsvc.sources.gym import inside
from toolsvc.tools.replaying import Journal
from toolsvc.tools.sandboxed import KINDS, HeldProcess, SandboxedTool
from toolsvc.types import Call, Result, SessionInfo, TagFormat, Text, ToolError

_SOURCE = inspect.getsource(inside)
_KEPT = 1 << 20
"""Bytes of the output that are read: the longest observation fits, at six bytes a character."""
_BEGIN_SECONDS = 60.0
"""Longest time in which an episode begins, the import of its library included."""
THREADED = "textarena"
"""Library that starts threads when it is imported: each session imports it."""
LONGEST_ACTION = 20_000
"""Characters of an action."""


class GymOptions(BaseModel):
    """Options of environments."""

    model_config = STRICT

    name: str = Field(default="act", pattern=r"^[A-Za-z_][\w-]*$", description="of the tool")
    actions: tuple[str, ...] = Field(
        default=(), description='names of numbered actions, from the first: ["left", "down"]'
    )
    packages: tuple[str, ...] = Field(
        default=(),
        description="folders with the environment's packages; the service's own come after them "
        "if the library is not there",
    )
    run_limit: float = Field(default=30.0, gt=0, description="seconds of an action")


class NotPlayed(Exception):
    """The environment reported a failure, or nothing; the message says what."""


class _Episode(HeldProcess):
    """State of a session."""

    called = "episode"

    def __init__(self, tool: GymTool, task: EpisodeTask, journal: Journal | None = None) -> None:
        super().__init__(tool._sandbox)
        self._tool = tool
        self.task = task
        self.journal = journal or Journal(self.called, tool.name)
        self.text = ""
        """Last observation."""
        self.over = False

    async def prepare(self) -> None:
        """Begins the episode. Raises Refused if the task names none that can begin."""
        process = await self._sandbox.take()
        try:
            await self._begin(process)
        except BaseException:
            process.close()
            raise
        self.process = process

    async def _begin(self, process: SandboxSession) -> None:
        told = json.dumps({**self._tool.job, "seed": self.task.seed, "reset": self.task.reset})
        mark, code = _program(f"begin(json.loads({told!r}))", before=_SOURCE)
        outcome = await process.run(code, limit=_BEGIN_SECONDS, keep=_KEPT)
        where = self._tool.where
        if outcome.ending is Ending.TAKEN_DOWN:
            raise backend_down(f"the {self.called} was lost: {outcome.reason}")
        try:
            self.text = str(_report(outcome, mark)["text"])
        except NotPlayed as error:
            raise Refused(
                Reason.INVALID_REQUEST,
                f"{where} cannot begin with seed {self.task.seed}: {error}",
                subject=where,
            ) from error
        self.task.check(self.text, where)
        self.journal.add(code, outcome)

    def forked(self) -> _Episode:
        """The same episode without a process. Raises Refused if it cannot be played again."""
        copy = _Episode(self._tool, self.task, self.journal.copy())
        copy.text, copy.over = self.text, self.over
        return copy


class GymTool(SandboxedTool):
    stateful = True
    fork_replays = True

    def __init__(
        self,
        library: str,
        where: str,
        arguments: Mapping[str, Any],
        options: GymOptions,
        sandbox: SandboxConfig,
    ) -> None:
        """library: the import name. where: id of the environment in it. arguments: of its
        constructor. sandbox: has the packages."""
        preload = (*sandbox.preload, *(() if library == THREADED else (library,)))
        super().__init__(options, replace(sandbox, preload=preload))
        self.where = where
        self.job = {
            "library": library,
            "where": where,
            "arguments": dict(arguments),
            "actions": options.actions,
        }
        self.name = options.name
        self.run_limit = options.run_limit
        self.description = f"Takes your next action in {where} and returns what you see then."
        tag = options.name
        self.format = TagFormat(open=f"<{tag}>", close=f"</{tag}>", argument="action")

    async def start(self) -> None:
        """Raises StartError if no episode can begin."""
        await super().start()
        episode = _Episode(self, EpisodeTask())
        try:
            await episode.prepare()
        except Refused as refusal:
            raise StartError(f"gym: {refusal.message}") from refusal
        finally:
            episode.close()

    async def open(self, session: SessionInfo) -> _Episode:
        return _Episode(self, task_of(session.metadata))

    async def fork(self, state: _Episode, session: SessionInfo) -> _Episode:
        if state.process is not None and state.process.gone is not None:
            raise Refused(Reason.SESSION_LOST, f"the episode was lost: {state.process.gone}")
        forked = state.forked()
        if not forked.journal.empty:
            process = forked.process = await self._sandbox.take()
            try:
                await forked.journal.replay(process, keep=_KEPT)
            except BaseException:
                forked.close()
                raise
        return forked

    def make_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"action": super().make_arguments(arguments)["action"].strip()}

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        if len(arguments["action"]) > LONGEST_ACTION:
            raise InvalidAction(f"the action has more than {LONGEST_ACTION} characters")

    async def run(self, state: _Episode, call: Call, cancellation: Cancellation) -> Result:
        action = call.arguments["action"]
        if action == LOOK:
            return look(state.text, over=state.over)
        if state.over:
            return invalid("the episode is over")
        mark, code = _program(f"act({action!r})")
        outcome = await state.run(code, cancellation, limit=call.run_limit, keep=_KEPT)
        state.journal.add(code, outcome)
        if outcome.ending is not Ending.OK:
            timeout = outcome.ending is Ending.TIMEOUT
            why = f"stopped after {call.run_limit:g} s" if timeout else outcome.reason
            return _lost(state, outcome.ending, why or outcome.ending.value)
        try:
            told = _report(outcome, mark)
        except NotPlayed as error:
            return _lost(state, Ending.EXCEPTION, f"{self.where} failed: {error}")
        if "invalid" in told:
            return invalid(str(told["invalid"]))
        state.text, state.over = str(told["text"]), bool(told["done"])
        return Result.of(state.text, done=state.over, reward=float(told["reward"]))


def _program(expression: str, before: str = "") -> tuple[str, str]:
    """(mark, code): the code prints the mark and then the value of the expression."""
    mark = secrets.token_hex(8)
    return mark, f"{before}\nprint('\\n{mark}' + {expression})\n"


def _report(outcome: Outcome, mark: str) -> dict[str, Any]:
    """What `inside` reported. Raises NotPlayed for an error and for no report."""
    _, marked, told = outcome.output.rpartition(mark)
    if outcome.ending is Ending.TIMEOUT:
        raise NotPlayed("it took too long")
    try:
        found = json.loads(told) if marked else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        lines = outcome.output.strip().splitlines()
        raise NotPlayed(outcome.reason or (lines[-1] if lines else "it reported nothing"))
    if "error" in found:
        raise NotPlayed(str(found["error"]))
    return found


def _lost(state: _Episode, ending: Ending, why: str) -> Result:
    """Result of an action that may have made half a step: its episode is lost."""
    message = f"the episode is lost: {why}"
    if state.process is not None:
        state.process.condemn(ending, message)
    error = ToolError(kind=KINDS[ending], message=message, session_lost=True)
    return Result(observation=(Text(text=message),), error=error)
