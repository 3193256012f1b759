"""A thread for code of the recipe that may block. It runs one call after another, in order.

The thread is a daemon: a function that never returns does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from toolwright.process.daemon import start_daemon

Outcome = tuple[Any, BaseException | None]
"""(value that the function returned, exception that it raised)."""

_Job = tuple[Callable[..., Any], tuple[Any, ...], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class DaemonThread:
    """Started at once, ends with `end` or with the loop of a call."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        start_daemon(self._work, name)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Outcome]:
        """Outcome of the function, once it has returned or raised. Cancelling the future does not
        stop the call."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()
        self._jobs.put((function, arguments, loop, outcome))
        return outcome

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns what the function returns, or raises what it raises."""
        value, error = await self.submit(function, *arguments)
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        """Ends the thread after all submitted calls."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, arguments, loop, outcome = job
            value, error = None, None
            try:
                value = function(*arguments)
            except BaseException as raised:  # noqa: BLE001 (handed to the caller)
                error = raised
            try:
                loop.call_soon_threadsafe(_settle, outcome, (value, error))
            except RuntimeError:  # the loop is closed: no caller waits any more
                return
            # Without this the thread would keep the call's objects alive until the next call.
            del job, function, arguments, outcome, value, error


def _settle(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
