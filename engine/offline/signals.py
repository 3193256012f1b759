"""SIGTERM and SIGINT stop the work in order; the same command continues it later.

Invariant: a second signal, later than AGAIN_S, ends the process at once, even if closing hangs.
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
"""Seconds within which a second signal counts as the first: `timeout` sends it to the process and
to its group."""
_STOPPING = (signal.SIGTERM, signal.SIGINT)


class StoppedBySignal(Exception):
    """A signal stopped the work; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}; the same command goes on")
        self.number = number


async def run_until_signal(work: Coroutine[Any, Any, T]) -> T:
    """Returns or raises what the work does.

    Raises StoppedBySignal after a signal, once the cancelled work has ended.
    """
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
            raise StoppedBySignal(stop.result())
        return task.result()
    finally:
        task.cancel()
        stop.cancel()
        await asyncio.gather(task, stop, return_exceptions=True)
        for number in _STOPPING:
            loop.remove_signal_handler(number)


@contextmanager
def raise_on_signal() -> Iterator[None]:
    """For work without an event loop: a signal raises StoppedBySignal inside the block.

    Only the main thread gets signals; in any other thread the block runs unchanged.
    """
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
    raise StoppedBySignal(number)


def _end_at_once(number: int) -> NoReturn:
    """Ends the process without closing anything: a second signal came."""
    sys.stderr.write(f"engine: {signal.Signals(number).name} again: ended without closing\n")
    sys.stderr.flush()
    os._exit(128 + number)
