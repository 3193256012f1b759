"""Threads that render and encode: neither may run on the event loop.

Encoding 33,000 tokens takes some 100 ms. A tokenizer serves one thread at a time, so each thread
reads its own. A lane, which is a trajectory's key, has one thread at a time: an agent that sends 64
MiB again and again leaves the other threads to other agents.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakValueDictionary

from ingress.text.tails import Tails

Result = TypeVar("Result")


class TextWorkers:
    """Threads with a tokenizer each. `close` them."""

    def __init__(self, make: Callable[[], Tails], threads: int) -> None:
        """make: reads a tokenizer; each thread calls it at its first work."""
        self._make = make
        self._own = threading.local()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ingress-text")
        self._lanes = WeakValueDictionary[str, asyncio.Lock]()

    async def run(self, work: Callable[[Tails], Result], lane: str) -> Result:
        """Runs `work` in a thread, after the earlier work of its lane. A cancelled caller does not
        stop it, and the lane waits for its end."""
        lock = self._lanes.get(lane)
        if lock is None:
            lock = self._lanes[lane] = asyncio.Lock()
        await lock.acquire()
        try:
            running = asyncio.get_running_loop().run_in_executor(self._threads, self._call, work)
        except RuntimeError:
            lock.release()
            raise

        def ended(done: asyncio.Future[Result]) -> None:
            lock.release()
            if not done.cancelled():
                done.exception()  # the caller may have left

        running.add_done_callback(ended)
        return await asyncio.shield(running)

    def close(self) -> None:
        """Lets the threads end after their present work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _call(self, work: Callable[[Tails], Result]) -> Result:
        tails = getattr(self._own, "tails", None)
        if tails is None:
            tails = self._own.tails = self._make()
        return work(tails)
