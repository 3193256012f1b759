"""How a call is stopped from outside, and how it tells that it left work behind, and what of its
time it waited."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from toolsvc.plugin.waiting import RunClock


class Cancellation:
    """One call's. Not thread-safe: all calls from the loop."""

    __slots__ = ("_left", "_stop", "clock", "requested")

    def __init__(self) -> None:
        self.requested = False
        self._stop: Callable[[], object] | None = None
        self._left: Future[Any] | None = None
        self.clock: RunClock | None = None
        """Of a call that has one: its tool leaves its run limit to `running.run_call`."""

    @property
    def waited(self) -> float:
        """Seconds since the call started that it waited for others."""
        return 0.0 if self.clock is None else self.clock.waited

    @property
    def goes_on(self) -> bool:
        """Something of the call still runs, though it has its answer."""
        return self._left is not None and not self._left.done()

    def on_request(self, stop: Callable[[], object]) -> None:
        """`stop` is called once cancelling is requested, at once if it was before."""
        self._stop = stop
        if self.requested:
            stop()

    def request(self) -> None:
        if not self.requested:
            self.requested = True
            if self._stop is not None:
                self._stop()

    def leave_behind(self, work: Future[Any]) -> None:
        """The call has answered, its thread has not ended."""
        self._left = work

    def when_idle(self, then: Callable[[], object]) -> None:
        """Calls `then` now, or on the loop once what was left behind has ended."""
        if self._left is None:
            then()
            return
        on_loop_when_done(self._left, lambda _: then())


def on_loop_when_done(work: Future[Any], then: Callable[[Future[Any]], object]) -> None:
    """Calls `then` on the running loop once a thread's work has ended; not at all where the loop
    has closed by then."""
    loop = asyncio.get_running_loop()

    def ended(done: Future[Any]) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(then, done)

    work.add_done_callback(ended)
