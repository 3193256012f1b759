"""Work that SIGTERM or SIGINT stops: what is in flight is closed in order, and the same command
goes on later."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """A signal ended it; the same command goes on."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}; the same command goes on")
        self.number = number


async def until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """What the work returns or raises; Stopped, when the work has let go, where a signal came
    first."""
    loop, caught = asyncio.get_running_loop(), asyncio.Queue[int]()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, caught.put_nowait, number)
    task = asyncio.create_task(work)
    stop = asyncio.create_task(caught.get())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
            raise Stopped(stop.result())
        return task.result()
    finally:
        task.cancel()
        stop.cancel()
        await asyncio.gather(task, stop, return_exceptions=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
