"""Outside attempts of this engine: those that wait for an agent, and those in progress.

Invariants
- An attempt is handed out once. A repeated request of a worker gets the attempt that it got.
- Only members of admitted groups are handed out, so the staleness bound holds.
- An attempt of an earlier life keeps its key, and its agent's requests wait until it goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial

from engine.core.rollout.assignment import Assignment, OutsideRun, RolloutContext
from engine.core.rollout.outside_attempt import OutsideAttempt
from engine.core.rollout.outside_call import forest_of
from engine.core.trajectory.log import AttemptLog
from engine.errors import GivenBack
from engine.serving.ingress.keys import Keys, KeyUse
from engine.serving.ingress.worker_lives import WorkerLives, holder_of
from toolwright.recipe import Agent

MOST_ENDED = 1 << 16
"""Ended attempts whose number of calls is in memory; the journal has those of later ones."""
HELD_S = 30.0
"""Longest time for which a request waits until its attempt goes on, in seconds."""
_GONE = "the process that started the agent is gone"


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

    def __init__(
        self,
        keys: Keys,
        durable: Callable[[], Awaitable[None]],
        recorded: Callable[[str], Awaitable[int]],
    ) -> None:
        """durable: returns when everything that was logged before is on disk. recorded: number of
        calls of an attempt whose record is stored, or 0."""
        self.keys = keys
        self.durable = durable
        self._recorded = recorded
        self._waiting = deque[tuple[OutsideAttempt, asyncio.Future[None]]]()
        self._wanted = dict[str, _Wanted]()
        """Requests of workers that wait for an attempt."""
        self._taken = dict[str, str]()
        """Names of attempts that have not ended, by the request that took them."""
        self._live = dict[str, OutsideAttempt]()
        self._expected = dict[str, asyncio.Event]()
        """Attempts that will soon be live; set when one is live or has ended."""
        self._ended = dict[str, int]()
        """Numbers of calls of ended attempts."""
        self._lives = WorkerLives(self._give_up)
        self._stops = False
        self.draining = False
        """Nothing is handed out any more."""

    def of_task(self, rules: Agent) -> OutsideRun:
        """Runs the attempts of a task with these rules."""
        return partial(self.run, rules)

    def expect(self, logs: Iterable[AttemptLog]) -> None:
        """Announces attempts of an earlier life: those that agents work on will go on."""
        for log in logs:
            if log.state.ended is not None:
                self._remember(log)
                continue
            self._expected.setdefault(log.attempt, asyncio.Event())
            self._taken[forest_of(log).begun.taker] = log.attempt

    def stop(self) -> None:
        """Announces the engine's end: attempts that it cancels go on in its next life."""
        self._stops = True

    def drain(self) -> None:
        """Gives back the attempts that no agent has taken, and answers workers that wait."""
        self.draining = True
        for _attempt, begun in list(self._waiting):
            if not begun.done():
                begun.set_exception(GivenBack())
        for wanted in self._wanted.values():
            if not wanted.attempt.done():
                wanted.attempt.set_result(None)
        self._wanted.clear()

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
        """Waits for an agent and runs the attempt. Raises AttemptFailed, or GivenBack if the engine
        drains before an agent takes it."""
        attempt, name = OutsideAttempt(context, assignment, log, rules), log.attempt
        try:
            if not log.state.opened:
                await self._offer(attempt)
            await attempt.run(lambda: self._started(attempt))
        finally:
            self._live.pop(name, None)
            if not (self._stops and log.state.ended is None and log.state.opened):
                if log.state.opened:
                    self._remember(log)
                    self._taken.pop(attempt.forest.begun.taker, None)
                self._settled(name)
            else:  # it goes on in the engine's next life
                self.expect([log])

    async def take(
        self, taker: str, wait: float, tasks: Collection[str] = ()
    ) -> OutsideAttempt | None:
        """An attempt for a worker; None after `wait` seconds without one. Its start is durable.

        taker: names the worker's request. A repeated request waits until its attempt goes on.
        tasks: names of tasks that the worker takes; empty = those whose agents the recipe does not
        start.
        """
        try:
            async with asyncio.timeout(wait):
                name = self._taken.get(taker)
                found = await (
                    self._handed_out(taker, tasks) if name is None else self.attempt(name)
                )
        except TimeoutError:
            return None
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

    async def calls_of(self, name: str) -> int:
        """Number of model calls of an attempt that has ended; 0 once its record is gone."""
        found = self._ended.get(name)
        return await self._recorded(name) if found is None else found

    async def attempt(self, name: str) -> OutsideAttempt | None:
        """An attempt in progress; None for one that has ended. Waits for an attempt of an earlier
        life. Raises TimeoutError after `HELD_S`."""
        if (expected := self._expected.get(name)) is not None:
            async with asyncio.timeout(HELD_S):
                await expected.wait()
        return self._live.get(name)

    async def _handed_out(self, taker: str, tasks: Collection[str]) -> OutsideAttempt | None:
        """The next attempt that is free; None if an equal request is given up meanwhile, or if the
        engine drains."""
        if self.draining:
            return None
        wanted = self._wanted.get(taker)
        if wanted is None:
            future = asyncio.get_running_loop().create_future()
            wanted = self._wanted[taker] = _Wanted(attempt=future, tasks=tasks)
        self._hand_out()
        try:
            return await asyncio.shield(wanted.attempt)
        finally:
            self._wanted.pop(taker, None)
            if not wanted.attempt.done():
                wanted.attempt.set_result(None)

    async def _offer(self, attempt: OutsideAttempt) -> None:
        """Returns when a worker has taken the attempt. Raises GivenBack."""
        if self.draining:
            raise GivenBack
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
            self.expect([attempt.log])
            begun.set_result(None)
            self._wanted.pop(taker).attempt.set_result(attempt)

    def _remember(self, log: AttemptLog) -> None:
        if len(self._ended) >= MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[log.attempt] = len(forest_of(log).accepted)

    def _started(self, attempt: OutsideAttempt) -> None:
        self._live[attempt.name] = attempt
        self._settled(attempt.name)
        if not self._lives.holds(attempt.forest.begun.taker):
            attempt.give_up(_GONE)

    def _give_up(self, holder: str) -> None:
        """A life of a worker is over: its requests get nothing, and its attempts are given up."""
        for taker in [name for name in self._wanted if holder_of(name) == holder]:
            self._wanted.pop(taker).attempt.set_result(None)
        for attempt in list(self._live.values()):
            if holder_of(attempt.forest.begun.taker) == holder:
                attempt.give_up(_GONE)

    def _settled(self, name: str) -> None:
        """Lets requests go on that waited for the attempt."""
        if (expected := self._expected.pop(name, None)) is not None:
            expected.set()
