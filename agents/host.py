"""The agent host: takes trajectories, keeps one agent alive for each, and reports their ends.

Invariants
- At most `at_once` agents of a task live.
- A trajectory whose engine says that it has ended loses its agent within `HOLD_S` and the time that
  its kind needs.
- A stop ends all agents, and reports their trajectories as ended by infrastructure.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from agents.engine_link import EngineLink
from agents.errors import StartError
from agents.kinds.kind import Assigned, Kind, Played
from agents.outcomes import STOPPED, Result, lost
from toolwright import wire
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.rpc.errors import ServiceError, TransportError

HOLD_S = 2.0
"""Interval between the messages that say which agents live, in seconds."""
OVER_S = 5.0
"""Pause before the next Take once the run is over, in seconds."""
MOST_LOGGED = 2000
"""Characters of the output of an agent that failed, in the host's log."""
LAST_S = 5.0
"""Longest time for the reports of a stop, in seconds."""

log = structlog.get_logger("agents")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The agents of a task. at_once: most of them that live at a time."""

    kind: Kind
    at_once: int


class AgentHost:
    """Agents of one recipe. `run` until it is cancelled, which ends them."""

    def __init__(
        self, link: EngineLink, programs: Mapping[str, Program], end_orphans: Callable[[], object]
    ) -> None:
        """programs: by the task's name. end_orphans: ends what agents left; called every
        `HOLD_S`."""
        self._link = link
        self._programs = programs
        self._end_orphans = end_orphans
        self._running = Counter[str]()
        self._freed = asyncio.Event()
        self._playing = dict[str, asyncio.Task[Played]]()
        """Living agents, by the trajectory's key."""

    async def run(self) -> None:
        """Raises StartError if the engine refuses this host."""
        refused: Exception | None = None
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._hold())
                await self._take(group)
        except* (ServiceError, TransportError) as errors:
            refused = errors.exceptions[0]
        if refused is not None:
            raise StartError(f"the engine refuses agents serve: {refused}")

    async def _take(self, group: asyncio.TaskGroup) -> None:
        number = 1
        while True:
            self._freed.clear()
            tasks = [
                name
                for name, program in self._programs.items()
                if self._running[name] < program.at_once
            ]
            if not tasks:
                await self._freed.wait()
                continue
            taken = await self._link.take(number, tasks)
            if taken.key:
                self._running[taken.task.name] += 1
                group.create_task(self._serve(number, taken))
                number += 1
            elif taken.over:
                await asyncio.sleep(OVER_S)

    async def _hold(self) -> None:
        while True:
            for key in await self._link.hold(list(self._playing)):
                playing = self._playing.get(key)
                if playing is not None and not playing.cancelling():
                    playing.cancel()
            self._end_orphans()
            await asyncio.sleep(HOLD_S)

    async def _serve(self, number: int, taken: pb.TakeResponse) -> None:
        """One trajectory, from its start to its report."""
        name, key = taken.task.name, taken.key
        about = log.bind(trajectory=taken.trajectory_id, attempt=taken.attempt)
        try:
            played = await self._play(number, taken)
            if played is None:
                about.info("agent_ended", after="its trajectory")
                return
            ending, result = played.ending, played.result
            if taken.reward_key and (result.reward is not None or result.parts):
                await self._report(about, taken.reward_key, result)
            calls = await self._link.ended(key, ending, result.answer, played.output)
            about.info("agent_ended", outcome=ending.outcome, calls=calls, error=ending.error)
            if ending.outcome != pb.OUTCOME_DONE or not calls:
                about.warning("agent_failed", output=played.output[-MOST_LOGGED:])
        except (ServiceError, TransportError) as error:
            about.warning("end_refused", error=str(error))
        except asyncio.CancelledError:
            with suppress(ServiceError, TransportError, TimeoutError):
                async with asyncio.timeout(LAST_S):
                    await self._link.ended(key, STOPPED, None, "")
            raise
        finally:
            self._running[name] -= 1
            self._freed.set()

    async def _play(self, number: int, taken: pb.TakeResponse) -> Played | None:
        """What the agent left; None if its trajectory ended first."""
        assigned = Assigned(
            number=number,
            attempt=taken.attempt,
            task=wire.task_from_proto(taken.task),
            key=taken.key,
            reward_key=taken.reward_key,
        )
        kind, here = self._programs[taken.task.name].kind, asyncio.current_task()
        self._playing[taken.key] = playing = asyncio.create_task(kind.play(assigned))
        try:
            return await playing
        except asyncio.CancelledError:
            if here is not None and here.cancelling():
                raise
            return None
        except Exception as error:  # one agent's fault must not end the others
            log.exception("agent_fault", trajectory=taken.trajectory_id, attempt=taken.attempt)
            return Played(ending=lost(f"agents serve: {type(error).__name__}: {error}"))
        finally:
            del self._playing[taken.key]

    async def _report(self, about: Any, reward_key: str, result: Result) -> None:
        try:
            await self._link.report(reward_key, result)
        except (ServiceError, TransportError) as error:
            about.warning("reward_refused", error=str(error))
