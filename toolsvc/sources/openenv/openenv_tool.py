"""`act`: one step of the episode that a session plays at an OpenEnv server.

Invariants
- A session has an episode of its own, which begins with its first call, as queue time.
- An action that does not fit the server's schema is not sent, and the policy reads why.
- A step that gets no answer loses the episode. No step is ever sent twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from toolsvc.errors import Reason, Refused, backend_down
from toolsvc.plugin.results import failure, invalid
from toolsvc.plugin.tool import Cancellation, LiveState, OutOfProcess
from toolsvc.schemas.schema_tool import SchemaTool
from toolsvc.schemas.validation import BadSchema, UnboundedSchema
from toolsvc.sources.episodes import EpisodeTask, look, task_of
from toolsvc.sources.openenv.episode import Away, NotOpenEnv, Observed, RemoteEpisode, StepRefused
from toolsvc.types import Call, Result, SessionInfo, Text, ToolError
from toolwright.types import ToolErrorKind

log = structlog.get_logger(__name__)


class _Played(LiveState):
    """State of a session."""

    def __init__(self, episode: RemoteEpisode, task: EpisodeTask, name: str) -> None:
        self.episode = episode
        self.text = ""
        """Last observation."""
        self.over = False
        self._task = task
        self._name = name
        self._begun = False

    @property
    def ready(self) -> bool:
        return self._begun

    async def prepare(self) -> None:
        """Begins the episode. Raises Refused."""
        reset = {"seed": self._task.seed, **(self._task.reset or {})}
        try:
            first = await self.episode.begin(reset)
            self._task.check(first.text, self._name)
        except BaseException as error:
            await self.episode.close()
            self.episode = self.episode.again()
            if isinstance(error, Away):
                raise backend_down(str(error)) from error
            if isinstance(error, NotOpenEnv | StepRefused):
                raise Refused(
                    Reason.INVALID_REQUEST,
                    f"{self._name} cannot begin with {reset!r:.200}: {error}",
                    subject=self._name,
                ) from error
            raise
        self.text, self.over, self._begun = first.text, first.done, True


class OpenEnvTool(SchemaTool):
    executor = OutOfProcess
    stateful = True

    def __init__(
        self,
        name: str,
        *,
        url: str,
        headers: Mapping[str, str],
        environment: str,
        description: str,
        schema: Mapping[str, Any],
        run_limit: float,
    ) -> None:
        """environment, description: the server's own. schema: of its actions."""
        self.name = name
        self.description = f"Takes your next step in {environment}. {description}".strip()
        self.run_limit = run_limit
        self.schema = schema
        self._environment = environment
        self._server = (url, headers)
        try:
            self._checks = bool(self.matcher)
        except (BadSchema, UnboundedSchema) as error:
            self._checks = False
            log.warning("actions are checked by the server alone", tool=name, why=str(error))

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        if self._checks and arguments:
            super().check_arguments(arguments)

    async def open(self, session: SessionInfo) -> _Played:
        return _Played(RemoteEpisode(*self._server), task_of(session.metadata), self._environment)

    async def close(self, state: _Played) -> None:
        await state.episode.close()

    async def run(self, state: _Played, call: Call, cancellation: Cancellation) -> Result:
        if not call.arguments:
            return look(state.text, over=state.over)
        if state.over:
            return invalid("the episode is over")
        if state.episode.lost is not None:
            return _lost(ToolErrorKind.CRASHED, state.episode.lost)
        step = asyncio.create_task(state.episode.step(call.arguments))
        cancellation.on_request(step.cancel)
        try:
            await asyncio.wait((step,), timeout=call.run_limit)
            if not step.done():
                return _lost(ToolErrorKind.TIMEOUT, f"stopped after {call.run_limit:g} s")
            return self._result(state, step)
        finally:
            step.cancel()

    def _result(self, state: _Played, step: asyncio.Task[Observed]) -> Result:
        if step.cancelled():
            return _lost(ToolErrorKind.CANCELLED, "the step was cancelled")
        try:
            seen = step.result()
        except StepRefused as error:
            if error.unfit:
                return invalid(f"{self.name}: {error}")
            return failure(ToolErrorKind.EXCEPTION, f"{self._environment}: {error}")
        except NotOpenEnv as error:
            return failure(ToolErrorKind.EXCEPTION, f"{self._environment}: {error}")
        except Away as error:
            return _lost(ToolErrorKind.CRASHED, str(error))
        state.text, state.over = seen.text, seen.done
        return Result.of(seen.text, done=seen.done, reward=seen.reward)


def _lost(kind: ToolErrorKind, why: str) -> Result:
    message = f"the episode is lost: {why}"
    error = ToolError(kind=kind, message=message, session_lost=True)
    return Result(observation=(Text(text=message),), error=error)
