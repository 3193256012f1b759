"""Calls functions of the recipe under a time limit: whatever they do is a value or CallFailed."""

from __future__ import annotations

import asyncio
import functools
import inspect
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from engine.core.rewards.reading import shown
from engine.core.rewards.threads import RewardThreads, ThreadOutOfTime, ThreadsLost

ENGINE = str(Path(__file__).resolve().parents[1])
"""Folder of the engine's own code."""


class CallFailed(Exception):
    """The function raised or took too long; the message says which, and the line that raised."""


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call gives a coroutine: nothing runs before it is awaited."""
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(function, "__call__", None)  # noqa: B004 (of an instance: its class's method)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def with_options(found: Any, options: Mapping[str, Any]) -> Any:
    """What a recipe's path names, called with the recipe's options where it has some, or where it
    is a class: what comes back is the function. TypeError or ValueError of that call."""
    return found(**options) if options or inspect.isclass(found) else found


def raised(error: BaseException) -> str:
    """What a function of the recipe raised, and the last line of the function's own file that the
    error passed: `raised KeyError('gold') at reward.py:12`."""
    frames = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    outside = [one for one in frames if not one[0].startswith(ENGINE)]
    if not outside:
        return f"raised {shown(error)}"
    file, _ = outside[0]
    line = [line for name, line in outside if name == file][-1]
    return f"raised {shown(error)} at {Path(file).name}:{line}"


async def call_on_loop(awaitable: Awaitable[Any], *, seconds: float) -> Any:
    """What the recipe's coroutine returns. CallFailed for what it raises, SystemExit and a
    cancellation of its own included, and after the time limit."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await awaitable
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise CallFailed("raised CancelledError()") from error
    except (Exception, SystemExit) as error:
        if limit.expired():
            raise CallFailed(f"took more than {seconds:g} s") from error
        raise CallFailed(raised(error)) from error


async def call_in_thread(
    threads: RewardThreads, function: Callable[[Any], Any], argument: Any, *, seconds: float
) -> Any:
    """What the function returns, awaited on the loop where it is a coroutine after all.
    CallFailed for whatever it raises, and after the time limit."""
    try:
        value, error = await threads.run(function, argument, seconds=seconds)
    except ThreadOutOfTime as late:
        raise CallFailed(f"took more than {seconds:g} s") from late
    except ThreadsLost as lost:
        raise CallFailed(str(lost)) from lost
    if error is not None:
        raise CallFailed(raised(error)) from error
    return await call_on_loop(value, seconds=seconds) if inspect.isawaitable(value) else value
