"""How the methods of a plugin are run: a plain function in a thread, a coroutine on the loop,
a call under its run limit.

Invariants
- `run_call` never raises what the plugin raised: that becomes a tool error which the policy sees.
  Only `Refused` goes through: the plugin says that nothing ran, and nothing is to be seen.
- The run limit counts what the call runs, not what it waits for (`waiting`), nor its line for a
  thread. A call that waits for too long is refused.
- The log has the traceback of what a plugin did not mean to raise, once for each place in its code.
- A thread cannot be stopped. When its limit passes, the call answers TIMEOUT, and tells its
  `Cancellation` that the thread goes on. A call that found no free thread until then is refused.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

from toolsvc.errors import RETRY_SECONDS, Reason, Refused
from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.cancellation import Cancellation, on_loop_when_done
from toolsvc.plugin.faults import log_fault
from toolsvc.plugin.results import ToolFailed, as_result, failure, invalid
from toolsvc.plugin.waiting import RunClock, waited_too_long
from toolsvc.types import Call, Result
from toolwright.types import ToolErrorKind

_THREADS = ThreadPoolExecutor(max_workers=64, thread_name_prefix="tool")
_IN_THREADS: set[Future[Any]] = set()


def is_coroutine(method: Callable[..., Any]) -> bool:
    """Whether it runs on the loop: an `async def`, or one around an `async def`, which says so by
    the attribute `is_coroutine` of its object."""
    owner = getattr(method, "__self__", None)
    return inspect.iscoroutinefunction(method) or getattr(owner, "is_coroutine", False)


async def run_method(
    method: Callable[..., Any], *arguments: Any, unwanted: Callable[[Any], object] | None = None
) -> Any:
    """What the method returns, from wherever it has to run. `unwanted` is told, on the loop, of
    what a plain function returns to nobody, because its caller was cancelled."""
    if is_coroutine(method):
        return await method(*arguments)
    thread = _in_thread(method, *arguments)
    try:
        result = await asyncio.wrap_future(thread)
    except asyncio.CancelledError:
        if unwanted is not None:
            on_loop_when_done(thread, partial(_tell, unwanted))
        raise
    return await result if inspect.isawaitable(result) else result


def _tell(unwanted: Callable[[Any], object], work: Future[Any]) -> None:
    if not work.cancelled() and work.exception() is None:
        unwanted(work.result())


async def run_call(
    method: Callable[[Any, Call], Any],
    on_loop: bool,
    state: Any,
    call: Call,
    cancellation: Cancellation,
    name: str,
) -> Result:
    """Runs a tool's `call` method under the call's limit and turns whatever happens into a result.

    `on_loop`: what `is_coroutine` says of the method, asked once and not for every call.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("run_call outside of a task")
    cancellation.on_request(task.cancel)
    thread: Future[Any] | None = None
    # What asyncio.timeout does, by a clock that can stand still.
    clock = cancellation.clock = RunClock(task, call.run_limit)
    try:
        if on_loop:
            value = await method(state, call)
        else:
            thread = _in_thread(_begun, clock, method, state, call)
            value = await asyncio.wrap_future(thread)
            if inspect.isawaitable(value):  # a plain function that hands back a coroutine
                value = await value
        return as_result(value)
    except asyncio.CancelledError as error:
        if clock.rang:
            task.uncancel()
            if thread is not None and thread.cancelled():
                raise _no_thread(name, call.run_limit) from None
            if clock.waited_for:
                raise waited_too_long(name, clock.waited_for) from None
            return failure(ToolErrorKind.TIMEOUT, f"{name} was stopped after {call.run_limit:g} s")
        if cancellation.requested:
            task.uncancel()
            return failure(ToolErrorKind.CANCELLED, f"{name} was cancelled")
        if task.cancelling():
            raise
        # Nobody cancelled the call: something that the plugin waited for was.
        return failure(ToolErrorKind.EXCEPTION, f"CancelledError: {error}".rstrip(": "))
    except Refused:
        raise  # Nothing ran, and the policy reads nothing of it.
    except InvalidAction as error:
        return invalid(str(error))
    except ToolFailed as error:
        return failure(ToolErrorKind.EXCEPTION, str(error))
    except Exception as error:  # noqa: BLE001 - the plugin's own fault, told to the policy
        log_fault(name, error, call)
        return failure(ToolErrorKind.EXCEPTION, f"{type(error).__name__}: {error}")
    finally:
        clock.stop()
        if thread is not None and not thread.done():
            cancellation.leave_behind(thread)


def plugins_in_threads() -> int:
    """How many plugin functions have not returned; the interpreter waits for them at its end."""
    return len(_IN_THREADS)


def _begun(clock: RunClock, method: Callable[..., Any], *arguments: Any) -> Any:
    clock.thread_began()
    return method(*arguments)


def _no_thread(name: str, seconds: float) -> Refused:
    """Nothing ran, so that it is nothing that the policy should read."""
    return Refused(
        Reason.QUEUE_LIMIT,
        f"no thread was free for {name} in {seconds:g} s",
        retry_after=RETRY_SECONDS,
        fix="make its call method a coroutine, or serve it with more --workers",
    )


def _in_thread(method: Callable[..., Any], *arguments: Any) -> Future[Any]:
    work = _THREADS.submit(copy_context().run, method, *arguments)  # it knows its call's clock
    _IN_THREADS.add(work)
    work.add_done_callback(_IN_THREADS.discard)
    return work
