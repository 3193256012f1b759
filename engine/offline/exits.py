"""How a command of `engine` runs and how it reports errors.

Invariant: an error that the user can fix is one sentence on standard error, with exit code 1 or
that of the error's class. Any other error is a defect and ends with its traceback.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EISDIR, EMFILE, ENOSPC, ENOTDIR, EPERM, EROFS
from typing import Any, NoReturn, TypeVar

import typer

from engine.errors import EngineError
from engine.offline.signals import StoppedBySignal
from toolwright.page.text import plain
from toolwright.recipe import RecipeError
from toolwright.rpc.errors import ListenError

T = TypeVar("T")


@contextmanager
def report_errors() -> Iterator[None]:
    """Ends the process with one sentence if the block raises an error that the user can fix.

    The first error inside nested groups counts. A signal ends it with 128 plus its number.
    """
    try:
        yield
    except StoppedBySignal as stopped:
        print_to_stderr(f"engine: {stopped}")
        sys.exit(128 + stopped.number)
    except (RecipeError, EngineError, ListenError, OSError, BaseExceptionGroup) as error:
        cause = _leaves(error)[0]
        text = file_system_message(cause) if isinstance(cause, OSError) else str(cause)
        if not text or not isinstance(cause, RecipeError | EngineError | ListenError | OSError):
            raise
        print_to_stderr(f"engine: {text}")
        sys.exit(cause.status if isinstance(cause, EngineError) else 1)


def file_system_message(error: OSError) -> str:
    """The message for an error of the file system, with the fix; "" for any other error."""
    fix = _FIXES.get(error.errno or 0)
    if fix is None or (error.filename is None and error.errno not in (ENOSPC, EDQUOT)):
        return ""
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror}: {fix}"


_RIGHTS = "give this user rights there, or name another place"
_ROOM = "free space, then run the same command again"
_FIXES = {
    EACCES: _RIGHTS,
    EROFS: _RIGHTS,
    EPERM: _RIGHTS,
    ENOSPC: _ROOM,
    EDQUOT: _ROOM,
    ENOTDIR: "a file has the name of a folder: name another place",
    EISDIR: "it is a folder: name a file",
    EMFILE: "raise the limit of open files (ulimit -n)",
}


def run_on_uvloop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs the coroutine that `work` makes on the servers' event loop; returns its result."""
    from toolwright.process.loop import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work())


def print_to_stderr(line: str) -> None:
    """Prints a line for users; standard output is for results.

    A line may quote untrusted files, so control characters are replaced.
    """
    typer.echo(plain(line), err=True)


def exit_before_serving(_number: int, _frame: object) -> NoReturn:
    """Handles SIGTERM until the engine installs its own handler."""
    print_to_stderr("engine: stopped by SIGTERM before it served")
    sys.exit(0)


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors inside nested groups, in order."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
