"""Runs the methods of a tool: plain functions in threads, coroutines on the loop, calls by the
tool's executor.

`InService` runs `Tool.call` in the service's own process. `OutOfProcess` hands the call to
`Tool.run`, which works with another process, a container or another service. Its sessions hold a
`LiveState`.

Invariants
- `InService` never raises what a tool raised: that becomes a tool error that the policy reads. Only
  `Refused` passes: nothing ran, and the policy reads nothing.
- The run limit counts running. It does not count what the call waits for (`waiting`), nor the wait
  for a free thread. A call that waits for too long is refused.
- The log has the traceback of an unexpected exception, once for each line of code.
- A thread cannot be stopped. When its limit passes, the call answers TIMEOUT and its `Cancellation`
  keeps the thread. A call that found no free thread until then is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol

from toolsvc.errors import RETRY_SECONDS, Reason, Refused
from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.faults import log_fault
from toolsvc.plugin.results import ToolFailed, as_result, failure, invalid
from toolsvc.plugin.waiting import RunClock, waited_too_long
from toolsvc.types import Call, Result
from toolwright.types import ToolErrorKind

_THREADS = ThreadPoolExecutor(max_workers=64, thread_name_prefix="tool")
_IN_THREADS: set[Future[Any]] = set()


class Cancellation:
    """How one call is stopped from outside, and what it left behind. Not thread-safe: every method
    is called on the loop."""

    __slots__ = ("_left", "_stop", "clock", "requested")

    def __init__(self) -> None:
        self.requested = False
        self._stop: Callable[[], object] | None = None
        self._left: Future[Any] | None = None
        self.clock: RunClock | None = None
        """Clock of a call that `InService` runs; None for any other call."""

    @property
    def waited(self) -> float:
        """Time that the call waited for others since it started, in seconds."""
        return 0.0 if self.clock is None else self.clock.waited

    @property
    def goes_on(self) -> bool:
        """Whether a thread of the call still runs, though the call has its answer."""
        return self._left is not None and not self._left.done()

    def on_request(self, stop: Callable[[], object]) -> None:
        """Calls `stop` when cancelling is requested, or now if it was requested before."""
        self._stop = stop
        if self.requested:
            stop()

    def request(self) -> None:
        if not self.requested:
            self.requested = True
            if self._stop is not None:
                self._stop()

    def leave_behind(self, work: Future[Any]) -> None:
        """Keeps the thread of a call that has answered."""
        self._left = work

    def when_idle(self, then: Callable[[], object]) -> None:
        """Calls `then` now, or on the loop when the thread that was left behind has ended."""
        if self._left is None:
            then()
            return
        on_loop_when_done(self._left, lambda _: then())


class LiveState:
    """State of a session that stands for something outside of the service: a process, a container,
    a connection."""

    @property
    def ready(self) -> bool:
        """Whether a call can run now; otherwise `prepare` is awaited first."""
        return True

    @property
    def lost(self) -> str | None:
        """Reason why the state is gone; None = it is there."""
        return None

    async def prepare(self) -> None:
        """Gets what a call needs, before the run limit begins. Raises Refused."""


class Executor(Protocol):
    """Runs the calls of one tool."""

    @property
    def stops(self) -> bool:
        """Whether a call can be stopped while it runs."""
        ...

    async def run(self, state: Any, call: Call, cancellation: Cancellation) -> Result:
        """Result of the call, whatever the tool did. Raises Refused if nothing ran."""
        ...


class OutOfProcess:
    """Hands each call to the tool's `run`, which keeps the run limit and obeys the cancellation."""

    stops = True

    def __init__(self, tool: Any) -> None:
        self.run: Callable[..., Any] = tool.run


class InService:
    """Runs each call in this process: a plain function in a thread, a coroutine on the loop."""

    __slots__ = ("_method", "_name", "stops")

    def __init__(self, tool: Any, method: Callable[[Any, Call], Any] | None = None) -> None:
        """method: what a call runs; None = the tool's `call`."""
        self._name: str = tool.name
        self._method = method or tool.call
        self.stops = inspect.iscoroutinefunction(self._method)

    async def run(self, state: Any, call: Call, cancellation: Cancellation) -> Result:
        """Result of the call, whatever the tool raised. Raises Refused if nothing ran."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a call runs outside of a task")
        cancellation.on_request(task.cancel)
        thread: Future[Any] | None = None
        # What asyncio.timeout does, by a clock that can stand still.
        clock = cancellation.clock = RunClock(task, call.run_limit)
        try:
            if self.stops:
                value = await self._method(state, call)
            else:
                thread = _in_thread(_begun, clock, self._method, state, call)
                value = await asyncio.wrap_future(thread)
                if inspect.isawaitable(value):  # from a plain function that returns a coroutine
                    value = await value
            return as_result(value)
        except asyncio.CancelledError as error:
            if clock.rang:
                task.uncancel()
                if thread is not None and thread.cancelled():
                    raise _no_thread(self._name, call.run_limit) from None
                if clock.waited_for:
                    raise waited_too_long(self._name, clock.waited_for) from None
                why = f"{self._name} was stopped after {call.run_limit:g} s"
                return failure(ToolErrorKind.TIMEOUT, why)
            if cancellation.requested:
                task.uncancel()
                return failure(ToolErrorKind.CANCELLED, f"{self._name} was cancelled")
            if task.cancelling():
                raise
            # The call was not cancelled: something that the tool waited for was.
            return failure(ToolErrorKind.EXCEPTION, f"CancelledError: {error}".rstrip(": "))
        except Refused:
            raise
        except InvalidAction as error:
            return invalid(str(error))
        except ToolFailed as error:
            return failure(ToolErrorKind.EXCEPTION, str(error))
        except Exception as error:  # noqa: BLE001 - the tool's own fault; the policy reads it
            log_fault(self._name, error, call)
            return failure(ToolErrorKind.EXCEPTION, f"{type(error).__name__}: {error}")
        finally:
            clock.stop()
            if thread is not None and not thread.done():
                cancellation.leave_behind(thread)


async def run_method(
    method: Callable[..., Any], *arguments: Any, unwanted: Callable[[Any], object] | None = None
) -> Any:
    """Return value of the method, wherever it has to run. `unwanted` is called on the loop with the
    return value of a plain function whose caller was cancelled."""
    if inspect.iscoroutinefunction(method):
        return await method(*arguments)
    thread = _in_thread(method, *arguments)
    try:
        result = await asyncio.wrap_future(thread)
    except asyncio.CancelledError:
        if unwanted is not None:
            on_loop_when_done(thread, partial(_hand_over, unwanted))
        raise
    return await result if inspect.isawaitable(result) else result


def _hand_over(unwanted: Callable[[Any], object], work: Future[Any]) -> None:
    if not work.cancelled() and work.exception() is None:
        unwanted(work.result())


def on_loop_when_done(work: Future[Any], then: Callable[[Future[Any]], object]) -> None:
    """Calls `then` on the running loop when the thread has ended, unless the loop has closed by
    then."""
    loop = asyncio.get_running_loop()

    def ended(done: Future[Any]) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(then, done)

    work.add_done_callback(ended)


def plugins_in_threads() -> int:
    """Number of plain functions that have not returned; the interpreter waits for them at exit."""
    return len(_IN_THREADS)


def _begun(clock: RunClock, method: Callable[..., Any], *arguments: Any) -> Any:
    clock.thread_began()
    return method(*arguments)


def _no_thread(name: str, seconds: float) -> Refused:
    return Refused(
        Reason.QUEUE_LIMIT,
        f"no thread was free for {name} in {seconds:g} s",
        retry_after=RETRY_SECONDS,
        fix="make its call method a coroutine, or serve it with more --workers",
    )


def _in_thread(method: Callable[..., Any], *arguments: Any) -> Future[Any]:
    work = _THREADS.submit(copy_context().run, method, *arguments)  # keeps the call's clock
    _IN_THREADS.add(work)
    work.add_done_callback(_IN_THREADS.discard)
    return work
