"""Waits of tests, and the clock of a trajectory that only tells what it was told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE = 20.0
"""Seconds until a test gives up on something that takes milliseconds."""


async def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Waits for `condition`; AssertionError names what did not come."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"waited {seconds:g} s for {what}"
        await asyncio.sleep(0.005)


class ToldClock:
    """What a trajectory's clock was told: the time since which it stands still, None to go on."""

    def __init__(self) -> None:
        self.told: list[float | None] = []

    def stop(self, since: float) -> None:
        self.told.append(since)

    def go_on(self) -> None:
        self.told.append(None)
