"""Outside attempts of this engine: those that wait for an agent, and those in progress.

Invariants
- An attempt is handed out once. A repeated request of a worker gets the attempt that it got.
- Only members of admitted groups are handed out, so the staleness bound holds.
- An attempt of an earlier life keeps its key, and its agent's requests wait until it goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from engine.core.rollout.assignment import Assignment, OutsideRun, RolloutContext
from engine.core.rollout.outside_attempt import OutsideAttempt
from engine.core.rollout.outside_call import forest_of
from engine.core.trajectory.log import AttemptLog
from engine.serving.ingress.keys import Keys
from toolwright.recipe import Agent

HELD_S = 30.0
"""Longest time for which a request waits until its attempt goes on, in seconds."""


class Agents:
    """All outside attempts. `of_task` gives a `RolloutContext.outside`."""

    def __init__(self, keys: Keys, durable: Callable[[], Awaitable[None]]) -> None:
        """durable: returns when everything that was logged before is on disk."""
        self.keys = keys
        self.durable = durable
        self._waiting = deque[tuple[OutsideAttempt, asyncio.Future[None]]]()
        self._wanted = dict[str, asyncio.Future[OutsideAttempt | None]]()
        """Requests of workers that wait for an attempt."""
        self._taken = dict[str, str]()
        """Names of attempts that have not ended, by the request that took them."""
        self._live = dict[str, OutsideAttempt]()
        self._expected = dict[str, asyncio.Event]()
        """Attempts that will soon be live; set when one is live or has ended."""
        self._stops = False

    def of_task(self, rules: Agent) -> OutsideRun:
        """Runs the attempts of a task with these rules."""
        return partial(self.run, rules)

    def expect(self, logs: Iterable[AttemptLog]) -> None:
        """Announces attempts that agents work on, and that will go on."""
        for log in logs:
            self._expected.setdefault(log.attempt, asyncio.Event())
            self._taken[forest_of(log).begun.taker] = log.attempt

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
            await attempt.run(lambda: self._started(attempt))
        finally:
            self._live.pop(name, None)
            if not (self._stops and log.state.ended is None and log.state.opened):
                self._settled(name)
                if log.state.opened:
                    self._taken.pop(attempt.forest.begun.taker, None)
            else:  # it goes on in the engine's next life
                self.expect([log])

    async def take(self, taker: str, wait: float) -> OutsideAttempt | None:
        """An attempt for a worker; None after `wait` seconds without one. Its start is durable.

        taker: names the worker's request. A repeated request waits until its attempt goes on.
        """
        try:
            async with asyncio.timeout(wait):
                name = self._taken.get(taker)
                found = await (self._handed_out(taker) if name is None else self.attempt(name))
        except TimeoutError:
            return None
        if found is not None:
            await self.durable()
        return found

    async def attempt(self, name: str) -> OutsideAttempt | None:
        """An attempt in progress; None for one that has ended. Waits for an attempt of an earlier
        life. Raises TimeoutError after `HELD_S`."""
        if (expected := self._expected.get(name)) is not None:
            async with asyncio.timeout(HELD_S):
                await expected.wait()
        return self._live.get(name)

    async def _handed_out(self, taker: str) -> OutsideAttempt | None:
        """The next attempt that is free; None if an equal request is given up meanwhile."""
        wanted = self._wanted.get(taker)
        if wanted is None:
            wanted = self._wanted[taker] = asyncio.get_running_loop().create_future()
        self._hand_out()
        try:
            return await asyncio.shield(wanted)
        finally:
            self._wanted.pop(taker, None)
            if not wanted.done():
                wanted.set_result(None)

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
        while self._waiting and self._wanted:
            attempt, begun = self._waiting.popleft()
            if begun.done():  # its run was cancelled
                continue
            taker = next(iter(self._wanted))
            attempt.begin(taker)
            self.expect([attempt.log])
            begun.set_result(None)
            self._wanted.pop(taker).set_result(attempt)

    def _started(self, attempt: OutsideAttempt) -> None:
        self._live[attempt.name] = attempt
        self._settled(attempt.name)

    def _settled(self, name: str) -> None:
        """Lets requests go on that waited for the attempt."""
        if (expected := self._expected.pop(name, None)) is not None:
            expected.set()
