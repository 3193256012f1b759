"""A bounded pool of threads for reward functions that are not async.

Invariants
- At most `slots` functions run within their time limit. Functions beyond it continue, because
  Python cannot end a thread; there are never more than `most_lost + slots` threads.
- The time of a call begins when it has a thread, so waiting for one is free.
- A function that never returns costs one thread, which is replaced; beyond `most_lost` of them,
  calls fail at once. A function that returns late gives its thread back.

A pool belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from engine.core.daemon_thread import DaemonThread, Outcome

MOST_LOST = 32
"""Most threads of functions beyond their time; each holds a trajectory, some megabytes."""

log = structlog.get_logger("reward")


class ThreadOutOfTime(Exception):
    """The function exceeded its time; its thread still runs it."""


class ThreadsLost(Exception):
    """Too many functions never returned: there is no thread for another."""


class RewardThreads:
    """A pool. `lost`: number of threads whose function is beyond its time now."""

    def __init__(self, slots: int, *, most_lost: int = MOST_LOST) -> None:
        self._slots = slots
        self._most_lost = most_lost
        self._places = asyncio.Semaphore(slots)
        self._idle: list[DaemonThread] = []
        self._closed = False
        self.lost = 0

    async def run(
        self, function: Callable[[Any], Any], argument: Any, *, seconds: float
    ) -> Outcome:
        """(what the function returned, what it raised).

        Raises ThreadOutOfTime after `seconds` in its thread, ThreadsLost if no thread is left.
        """
        async with self._places:
            if self.lost >= self._most_lost:
                raise ThreadsLost(f"{self.lost} calls of the reward function never returned")
            thread = self._idle.pop() if self._idle else DaemonThread("reward")
            outcome = thread.submit(function, argument)
            try:
                await asyncio.wait({outcome}, timeout=seconds)
            finally:
                if outcome.done():
                    self._give_back(thread)
                else:
                    self._lose(thread, outcome)
        if not outcome.done():
            log.warning(
                "reward_thread_lost",
                lost=self.lost,
                most=self._most_lost,
                fix="give the function a time limit of its own, or make it async",
            )
            raise ThreadOutOfTime
        return outcome.result()

    def close(self) -> None:
        """Ends the threads that run nothing."""
        self._closed = True
        while self._idle:
            self._idle.pop().end()

    def _lose(self, thread: DaemonThread, outcome: asyncio.Future[Outcome]) -> None:
        self.lost += 1
        outcome.add_done_callback(lambda _: self._regain(thread))

    def _regain(self, thread: DaemonThread) -> None:
        self.lost -= 1
        self._give_back(thread)

    def _give_back(self, thread: DaemonThread) -> None:
        if self._closed or len(self._idle) >= self._slots:
            thread.end()
        else:
            self._idle.append(thread)
