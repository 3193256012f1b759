"""Calls functions of the recipe under a time limit; the result is a value or CallFailed."""

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
    """The function raised or took too long; the text has the reason and the line."""


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call returns a coroutine, so that nothing runs before it is awaited."""
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(function, "__call__", None)  # noqa: B004 (of an instance: its class's method)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def with_options(found: Any, options: Mapping[str, Any]) -> Any:
    """The function of a recipe's path. A class, or any object with options, is called to make it.

    Raises TypeError or ValueError as that call does.
    """
    return found(**options) if options or inspect.isclass(found) else found


def raised(error: BaseException) -> str:
    """The error of a recipe's function, with the last line of its own file in the traceback:
    `raised KeyError('gold') at reward.py:12`."""
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
    """The result of a recipe's coroutine.

    Raises CallFailed for its errors, SystemExit and its own cancellation included, and after the
    time limit.
    """
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
    """The result of a function, awaited on the loop if it is a coroutine.

    Raises CallFailed for its errors and after the time limit.
    """
    try:
        value, error = await threads.run(function, argument, seconds=seconds)
    except ThreadOutOfTime as late:
        raise CallFailed(f"took more than {seconds:g} s") from late
    except ThreadsLost as lost:
        raise CallFailed(str(lost)) from lost
    if error is not None:
        raise CallFailed(raised(error)) from error
    return await call_on_loop(value, seconds=seconds) if inspect.isawaitable(value) else value
