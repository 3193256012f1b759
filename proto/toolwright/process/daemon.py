"""Threads that must not keep their process from ending."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def start_daemon(work: Callable[[], object], name: str) -> threading.Thread:
    """Runs `work` in a daemon thread; returns the thread, started. Raises RuntimeError if the
    system grants no thread."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


async def in_daemon(work: Callable[[], Result], name: str) -> Result:
    """Result of `work`, which runs in a daemon thread of its own; raises what `work` raises.

    A caller that is cancelled returns at once. The thread ends by itself, and its result is lost.
    """
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            future.set_exception(error)

    start_daemon(run, name)
    return await asyncio.wrap_future(future)
