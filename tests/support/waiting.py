"""Waits of tests, and the clock of a trajectory that only tells what it was told.

A test that waits says for what: `until` something holds, that something `holds_for` a time, or why
time `passes` (or `blocks`, where there is no loop). A bare sleep in a test is refused by
`tests/unit/test_sleeps.py`: it is either too short for a busy machine or too long for all others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from engine.core.time_limit import TimeLimit

PATIENCE = 60.0
"""Seconds until a test gives up on something that takes milliseconds."""


async def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Waits for `condition`; AssertionError names what did not come."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"waited {seconds:g} s for {what}"
        await asyncio.sleep(0.005)


async def holds_for(seconds: float, condition: Callable[[], bool], what: str) -> None:
    """Sees that `condition` holds all the time; AssertionError names what was expected."""
    deadline = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < deadline:
        assert condition(), f"expected {what} for {seconds:g} s"
        await asyncio.sleep(min(0.02, seconds / 4))
    assert condition(), f"expected {what} for {seconds:g} s"


async def passes(seconds: float, why: str) -> None:
    """Lets time pass that the test is about: an outage, a lease that runs out, or the beginning of
    what tells nobody that it has begun. `why` is for readers."""
    assert why
    await asyncio.sleep(seconds)


def blocks(seconds: float, why: str) -> None:
    """As `passes`, in a test without a loop or of a loop that stands still."""
    assert why
    time.sleep(seconds)


class ToldClock(TimeLimit):
    """What a trajectory's clock was told: the time since which it stands still, None to go on."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.told: list[float | None] = []

    def stop(self, since: float) -> None:
        self.told.append(since)

    def go_on(self) -> None:
        self.told.append(None)
