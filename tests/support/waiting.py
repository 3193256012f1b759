"""Waits in tests, without what an engine imports."""

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
