"""Threads that render and encode: neither may run on the event loop.

Encoding 33,000 tokens takes some 100 ms. A tokenizer serves one thread at a time, so each thread
reads its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ingress.text.tails import Tails

Result = TypeVar("Result")


class TextWorkers:
    """Threads with a tokenizer each. `close` them."""

    def __init__(self, make: Callable[[], Tails], threads: int) -> None:
        """make: reads a tokenizer; each thread calls it at its first work."""
        self._make = make
        self._own = threading.local()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ingress-text")

    async def run(self, work: Callable[[Tails], Result]) -> Result:
        """Runs `work` in a thread. A cancelled caller does not stop it."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, work)

    def close(self) -> None:
        """Lets the threads end after their present work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _call(self, work: Callable[[Tails], Result]) -> Result:
        tails = getattr(self._own, "tails", None)
        if tails is None:
            tails = self._own.tails = self._make()
        return work(tails)
