"""An event loop in a thread of its own, for synchronous callers.

Invariants
- All coroutines run in one thread and one loop, also those of several callers.
- A caller that is interrupted while it waits cancels its coroutine.
- `close` cancels all running coroutines, and returns when the thread has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from toolwright.process.daemon import start_daemon

Answer = TypeVar("Answer")


class BackgroundLoop:
    """Runs from construction until `close`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = start_daemon(self._loop.run_forever, name)

    def start(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Begins `work` and returns at once. Cancelling the future cancels the work."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Result of `work`; raises what `work` raises."""
        return outcome(self.start(work))

    def close(self) -> None:
        """Ends the loop; it cannot be used again."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def outcome(future: Future[Answer]) -> Answer:
    """Result of started work. An interrupted wait cancels the work."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
