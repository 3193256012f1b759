"""A thread for code of the recipe that may block: one call after the other, in the order asked.

The thread is a daemon: a function that never returns does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from toolwright.process.daemon import start_daemon

Outcome = tuple[Any, BaseException | None]
"""What a function returned, what it raised."""

_Job = tuple[Callable[..., Any], tuple[Any, ...], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class DaemonThread:
    """Started at once, ends with `end` or with the loop of a call."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        start_daemon(self._work, name)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Outcome]:
        """What the function gives, once it has returned or raised. To cancel the future changes
        nothing about the call."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()
        self._jobs.put((function, arguments, loop, outcome))
        return outcome

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns, or raises what it raises."""
        value, error = await self.submit(function, *arguments)
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        """Ends the thread after the calls that were asked for."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, arguments, loop, outcome = job
            value, error = None, None
            try:
                value = function(*arguments)
            except BaseException as raised:  # noqa: BLE001 (handed to the one who waits)
                error = raised
            try:
                loop.call_soon_threadsafe(_settle, outcome, (value, error))
            except RuntimeError:  # the loop is closed: nobody waits any more
                return
            # Else the thread would hold what the call was about until the next one.
            del job, function, arguments, outcome, value, error


def _settle(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
