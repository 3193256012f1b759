"""Time of a call: what it runs itself, and what it waits for others.

Invariants
- The run limit counts running alone. It stands still while any part of a call is in `waiting`. So
  does the queue limit of a session that is being opened.
- An exception in `waiting`, a timeout included, leaves it as `Refused`: the policy does not read a
  backend's fault. `ToolFailed` and `InvalidAction` pass, for the policy.
- A call, or an opening, waits for at most `WAIT_SECONDS`, all its waits together. Then it is
  refused.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from toolsvc.errors import Refused, backend_down
from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.alarm import Alarm
from toolsvc.plugin.faults import log_fault
from toolsvc.plugin.results import ToolFailed
from toolwright.rpc.errors import first_line

WAIT_SECONDS = 600.0
"""Longest wait of a call. All tries of any backend here, with the wait for a place, are shorter."""


class RunClock:
    """Cancels the task of a call, or of an opening, that has run or waited for too long. The task
    makes it.

    `wait_began`, `wait_ended` and `thread_began` may be called from any thread, all other methods
    from the loop.
    """

    __slots__ = (
        "_alarm",
        "_left",
        "_line",
        "_loop",
        "_since",
        "_stopped",
        "_task",
        "_thread",
        "_waited",
        "_waits",
        "rang",
        "waited_for",
    )

    def __init__(self, task: asyncio.Task[Any], limit: float) -> None:
        """limit: longest run, in seconds."""
        self._task = task
        self._loop = task.get_loop()
        self._thread = threading.get_ident()
        self._left = limit
        self._line = 0.0
        """Wait for a thread that the limit does not know yet, in seconds."""
        self._waited = 0.0
        self._waits: list[str] = []
        self._since = time.perf_counter()
        """Time of the last change between running and waiting."""
        self._stopped = False
        self.rang = False
        """Whether it has cancelled the task."""
        self.waited_for = ""
        """Backend that the call waited for when it was cancelled; "" = it ran."""
        self._alarm = Alarm(limit, self._ring)
        _CLOCK.set(self)

    @property
    def waited(self) -> float:
        """Wait up to now, in seconds."""
        still = time.perf_counter() - self._since if self._waits and not self._stopped else 0.0
        return self._waited + self._line + still

    def wait_began(self, backend: str) -> None:
        self._on_loop(self._pause, backend)

    def wait_ended(self, backend: str) -> None:
        self._on_loop(self._go_on, backend)

    def thread_began(self) -> None:
        """The call runs in a thread from now on. The loop is not told: that would cost every call a
        wake-up, and the alarm asks in time."""
        self._line = time.perf_counter() - self._since

    def stop(self) -> None:
        """The call has ended. What it shares with others may still wait; that does not count."""
        self._waited, self._line = self.waited, 0.0
        self._stopped = True
        self._alarm.cancel()

    def _on_loop(self, method: Callable[[str, float], None], backend: str) -> None:
        now = time.perf_counter()
        if threading.get_ident() == self._thread:
            method(backend, now)
        else:
            with suppress(RuntimeError):  # The loop has closed, and the call with it.
                self._loop.call_soon_threadsafe(method, backend, now)

    def _pause(self, backend: str, now: float) -> None:
        self._waits.append(backend)
        if len(self._waits) == 1 and not self._stopped:
            self._left -= now - self._since - self._told_of_line()
            self._turn(now, WAIT_SECONDS - self._waited)

    def _go_on(self, backend: str, now: float) -> None:
        self._waits.remove(backend)
        if not self._waits and not self._stopped:
            self._waited += now - self._since
            self._turn(now, self._left)

    def _turn(self, now: float, seconds: float) -> None:
        self._since = now
        self._alarm.cancel()
        self._alarm = Alarm(max(0.0, seconds), self._ring)

    def _told_of_line(self) -> float:
        line, self._line = self._line, 0.0
        self._waited += line
        return line

    def _ring(self) -> None:
        line = self._told_of_line()
        if line > 0:
            self._alarm = Alarm(line, self._ring)
            return
        self.rang = True
        if self._waits:
            self.waited_for = self._waits[0]
        self.stop()
        self._task.cancel()


_CLOCK: ContextVar[RunClock | None] = ContextVar("run_clock", default=None)
"""Clock of the call that this task, child task or thread belongs to."""


@contextmanager
def waiting(backend: str) -> Iterator[None]:
    """Within the block the call waits for `backend`, a few words that a refusal can name.

    For coroutines and for plain functions. A refused call may come again under its id, so its work
    before the block must bear to be done twice.
    """
    clock = _CLOCK.get()
    if clock is not None:
        clock.wait_began(backend)
    try:
        yield
    except (Refused, ToolFailed, InvalidAction):
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise _down(backend, error) from error  # The call itself was not cancelled.
    except Exception as error:
        log_fault(backend, error)
        raise _down(backend, error) from error
    finally:
        if clock is not None:
            clock.wait_ended(backend)


def waited_too_long(tool: str, backend: str) -> Refused:
    return backend_down(f"{tool} waited {WAIT_SECONDS:g} s for {backend}")


def _down(backend: str, error: BaseException) -> Refused:
    return backend_down(f"{backend}: {first_line(error)}")
