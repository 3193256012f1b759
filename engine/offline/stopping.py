"""Work that SIGTERM or SIGINT stops: what is in flight is closed in order, and the same command
goes on later.

Invariant: a second signal, after AGAIN_S, ends the process at once, whatever hangs while it closes.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
AGAIN_S = 0.5
"""A signal that comes sooner after the first is the same one: `timeout` sends it to the process and
to its group."""
_STOPPING = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """A signal ended it; the same command goes on."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}; the same command goes on")
        self.number = number


async def until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """What the work returns or raises; Stopped, when the work has let go, where a signal came
    first."""
    loop, caught = asyncio.get_running_loop(), asyncio.Queue[int]()
    first = math.inf

    def catch(number: int) -> None:
        nonlocal first
        if loop.time() - first > AGAIN_S:
            _end_at_once(number)
        first = min(first, loop.time())
        caught.put_nowait(number)

    for number in _STOPPING:
        loop.add_signal_handler(number, catch, number)
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
        for number in _STOPPING:
            loop.remove_signal_handler(number)


@contextmanager
def stoppable() -> Iterator[None]:
    """For work without a loop: Stopped where the block is when a signal comes. In the main thread;
    elsewhere signals do not come, and nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _stop) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    raise Stopped(number)


def _end_at_once(number: int) -> NoReturn:
    """Nothing more is closed: who waits for that has said twice that they will not."""
    sys.stderr.write(f"engine: {signal.Signals(number).name} again: ended without closing\n")
    sys.stderr.flush()
    os._exit(128 + number)
