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
from engine.errors import StartupError
from toolwright.imports import ImportPathError, load_object

ENGINE = str(Path(__file__).resolve().parents[2])
"""Folder of the engine's own code."""


class CallFailed(Exception):
    """The function raised or took too long; the text has the reason and the line."""


class RecipeFunction:
    """A function that a recipe or a command names, called under a time limit."""

    def __init__(
        self,
        key: str,
        path: str,
        folder: Path,
        *,
        seconds: float,
        threads: int = 1,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """key: the setting with the path, for error messages. seconds: longest time of a call.

        A class, or any object with options, is called with them first and gives the function.
        Raises StartupError if that fails or the path is not a function.
        """
        try:
            found = load_object(path, folder)
            self.function = found(**(options or {})) if options or inspect.isclass(found) else found
        except ImportPathError as error:
            raise StartupError(f"{key}: {error}") from error
        except (TypeError, ValueError) as error:
            raise StartupError(f"{key}_options do not fit {path!r}: {error}") from error
        if not callable(self.function):
            raise StartupError(
                f"{key}: {path!r} is not a function: name a function of one argument"
            )
        self.is_async = _is_async(self.function)
        self._seconds = seconds
        self._threads = RewardThreads(threads)

    async def call(self, argument: Any) -> Any:
        """The function's result, on a thread unless it is async.

        Raises CallFailed for its errors, SystemExit and its own cancellation included, and after
        the time limit.
        """
        if self.is_async:
            return await _on_loop(self.function(argument), self._seconds)
        try:
            value, error = await self._threads.run(self.function, argument, seconds=self._seconds)
        except ThreadOutOfTime as late:
            raise CallFailed(f"took more than {self._seconds:g} s") from late
        except ThreadsLost as lost:
            raise CallFailed(str(lost)) from lost
        if error is not None:
            raise CallFailed(raised(error)) from error
        return await _on_loop(value, self._seconds) if inspect.isawaitable(value) else value

    def close(self) -> None:
        """Ends the threads; no calls afterwards."""
        self._threads.close()


def _is_async(function: Callable[..., Any]) -> bool:
    """Whether a call returns a coroutine, so that nothing runs before it is awaited."""
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(function, "__call__", None)  # noqa: B004 (of an instance: its class's method)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


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


async def _on_loop(awaitable: Awaitable[Any], seconds: float) -> Any:
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
