"""How a command of `engine` runs, and how it ends where it cannot do what it was asked.

Invariant: whatever keeps a command from its work and has a mend is one sentence on standard error
and exit code 1, or that of the error's class. What has no mend here is a defect and ends with its
traceback.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EISDIR, EMFILE, ENOSPC, ENOTDIR, EPERM, EROFS
from typing import Any, NoReturn

import typer

from engine.errors import EngineError
from toolwright.page.text import plain
from toolwright.recipe import RecipeError
from toolwright.rpc.errors import ListenError


@contextmanager
def one_sentence() -> Iterator[None]:
    """Ends the process with the first cause's sentence where the block raises an error that has
    one; the error may be inside of nested groups."""
    try:
        yield
    except (RecipeError, EngineError, ListenError, OSError, BaseExceptionGroup) as error:
        cause = _leaves(error)[0]
        said = of_the_disk(cause) if isinstance(cause, OSError) else str(cause)
        if not said or not isinstance(cause, RecipeError | EngineError | ListenError | OSError):
            raise
        tell_people(f"engine: {said}")
        sys.exit(cause.status if isinstance(cause, EngineError) else 1)


def of_the_disk(error: OSError) -> str:
    """What a file system refuses, with the mend; empty for other errors."""
    mend = _MENDS.get(error.errno or 0)
    if mend is None or (error.filename is None and error.errno not in (ENOSPC, EDQUOT)):
        return ""
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror}: {mend}"


_RIGHTS = "give this user rights there, or name another place"
_ROOM = "make room, and start the same command again"
_MENDS = {
    EACCES: _RIGHTS,
    EROFS: _RIGHTS,
    EPERM: _RIGHTS,
    ENOSPC: _ROOM,
    EDQUOT: _ROOM,
    ENOTDIR: "a file is where a folder is meant, name another place",
    EISDIR: "a folder is where a file is meant, name the file",
    EMFILE: "raise the limit of open files (ulimit -n)",
}


def run_on_uvloop(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs the coroutine that `work` makes, on the servers' event loop."""
    from toolwright.process.loop import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(work())


def tell_people(line: str) -> None:
    """Standard error is for people, standard output for what was asked. A line may quote a file of
    strangers, so what would steer the terminal is left out."""
    typer.echo(plain(line), err=True)


def leave_before_serving(_number: int, _frame: object) -> NoReturn:
    """The handler of SIGTERM until the engine has one of its own."""
    tell_people("engine: told to stop before it served")
    sys.exit(0)


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors inside nested groups; a task that failed arrives in the groups around it."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
