"""Outside attempts of this engine: those that wait for an agent, and those that one works on.

Invariants
- An attempt is handed out once. A repeated request of a worker gets the attempt that it got.
- Only members of admitted groups are handed out, so the staleness bound holds.
- An attempt of an earlier life keeps its key, and its agent's requests wait until it goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from engine.core.rollout.assignment import Assignment, OutsideRun, RolloutContext
from engine.core.rollout.outside_attempt import OutsideAttempt
from engine.core.rollout.outside_requests import AgentEnd
from engine.core.trajectory.log import AttemptLog
from engine.serving.ingress.keys import Keys, KeyUse
from engine.serving.ingress.worker_lives import WorkerLives, holder_of
from toolwright.recipe import Agent
from toolwright.types import StopReason

HELD_S = 30.0
"""Longest time for which a request waits until its attempt goes on, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A worker's request that waits for an attempt. tasks: see `Agents.take`."""

    attempt: asyncio.Future[OutsideAttempt | None]
    tasks: Collection[str]

    def takes(self, attempt: OutsideAttempt) -> bool:
        if self.tasks:
            return attempt.assignment.task.name in self.tasks
        return not attempt.rules.started_here


class Agents:
    """All outside attempts. `of_task` gives a `RolloutContext.outside`."""

    def __init__(self, keys: Keys, durable: Callable[[], Awaitable[None]]) -> None:
        """durable: returns when everything that was logged before is on disk."""
        self.keys = keys
        self.durable = durable
        self._waiting = deque[tuple[OutsideAttempt, asyncio.Future[None]]]()
        self._wanted = dict[str, _Wanted]()
        """Requests of workers that wait for an attempt."""
        self._taken = dict[str, OutsideAttempt]()
        """Attempts that have not ended, by the request that took them."""
        self._live = dict[str, OutsideAttempt]()
        self._expected = dict[str, asyncio.Event]()
        """Attempts that will soon be live; set when one is live or has ended."""
        self._lives = WorkerLives(self._give_up)
        self._earlier = dict[str, str]()
        """Attempts of an earlier life, by the request that took them."""
        self._stops = False

    def of_task(self, rules: Agent) -> OutsideRun:
        """Runs the attempts of a task with these rules."""
        return partial(self.run, rules)

    def expect(self, attempts: Mapping[str, str]) -> None:
        """Announces attempts of an earlier life that will go on, with their takers."""
        for name, taker in attempts.items():
            self._expected.setdefault(name, asyncio.Event())
            self._earlier[taker] = name

    def stop(self) -> None:
        """Announces the engine's end: attempts that it cancels go on in its next life."""
        self._stops = True

    @property
    def waiting(self) -> int:
        """Number of attempts that no agent has taken."""
        return len(self._waiting)

    @property
    def live(self) -> int:
        """Number of attempts that agents work on."""
        return len(self._live)

    async def run(
        self, rules: Agent, context: RolloutContext, assignment: Assignment, log: AttemptLog
    ) -> None:
        """Waits for an agent and runs the attempt. Raises AttemptFailed."""
        attempt, name = OutsideAttempt(context, assignment, log, rules), log.attempt
        try:
            if not log.state.opened:
                await self._offer(attempt)
            self._taken[attempt.forest.begun.taker] = attempt
            await attempt.run(lambda: self._started(attempt))
        finally:
            self._live.pop(name, None)
            if self._stops and log.state.ended is None:  # it goes on in the engine's next life
                self.expect({name: attempt.forest.begun.taker} if log.state.opened else {})
            else:
                self._settled(name)
            if log.state.opened:
                self._taken.pop(attempt.forest.begun.taker, None)

    async def take(
        self, taker: str, wait: float, tasks: Collection[str] = ()
    ) -> OutsideAttempt | None:
        """An attempt for a worker; None after `wait` seconds without one. Its start is durable.

        taker: names the worker's request. tasks: names of tasks that the worker takes; empty =
        those whose agents the recipe does not start. Raises TimeoutError while an attempt that the
        request took in an earlier life does not go on.
        """
        found = self._taken.get(taker)
        if found is None and (name := self._earlier.get(taker)) is not None:
            found = await self.attempt(name)
        if found is None:
            wanted = self._wanted.get(taker)
            if wanted is None:
                future = asyncio.get_running_loop().create_future()
                wanted = self._wanted[taker] = _Wanted(attempt=future, tasks=tasks)
            self._hand_out()
            try:
                async with asyncio.timeout(wait):
                    found = await asyncio.shield(wanted.attempt)
            except TimeoutError:
                found = None
            finally:
                self._wanted.pop(taker, None)
                if not wanted.attempt.done():
                    wanted.attempt.set_result(None)
        if found is not None:
            await self.durable()
        return found

    def seen(self, worker: str, life: str) -> None:
        """A worker sent a request. Raises LifeOver. life: "" if its agents do not depend on it."""
        self._lives.seen(worker, life)

    def ended(self, keys: Iterable[str]) -> list[str]:
        """Keys among `keys` whose attempts have ended, or that this run did not make."""
        names = {key: self.keys.attempt(key, KeyUse.CALLS) for key in keys}
        return [
            key
            for key, name in names.items()
            if name is None or not (name in self._live or name in self._expected)
        ]

    async def attempt(self, name: str) -> OutsideAttempt | None:
        """An attempt in progress; None for one that has ended. Waits for an attempt of an earlier
        life. Raises TimeoutError after `HELD_S`."""
        if (expected := self._expected.get(name)) is not None:
            async with asyncio.timeout(HELD_S):
                await expected.wait()
        return self._live.get(name)

    async def _offer(self, attempt: OutsideAttempt) -> None:
        """Returns when a worker has taken the attempt."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (attempt, begun)
        self._waiting.append(entry)
        self._hand_out()
        try:
            await begun
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)

    def _hand_out(self) -> None:
        """Gives waiting attempts to waiting workers, both in their order."""
        for entry in list(self._waiting) if self._wanted else ():
            attempt, begun = entry
            taker = next((name for name, one in self._wanted.items() if one.takes(attempt)), None)
            if begun.done() or taker is None:  # its run was cancelled, or no worker takes it
                continue
            self._waiting.remove(entry)
            attempt.begin(taker)
            self._taken[taker] = attempt
            self._expected[attempt.name] = asyncio.Event()
            begun.set_result(None)
            self._wanted.pop(taker).attempt.set_result(attempt)

    def _started(self, attempt: OutsideAttempt) -> None:
        self._live[attempt.name] = attempt
        self._settled(attempt.name)
        if not self._lives.holds(attempt.forest.begun.taker):
            _lose(attempt)

    def _give_up(self, holder: str) -> None:
        for attempt in list(self._live.values()):
            if holder_of(attempt.forest.begun.taker) == holder:
                _lose(attempt)

    def _settled(self, name: str) -> None:
        """Lets requests go on that waited for the attempt."""
        if (expected := self._expected.pop(name, None)) is not None:
            expected.set()


def _lose(attempt: OutsideAttempt) -> None:
    why = "the process that started the agent is gone"
    attempt.end(AgentEnd(reason=StopReason.INFRASTRUCTURE_ERROR, failure=why))
