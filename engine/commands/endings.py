"""How a command of `engine` runs, and how it ends where it cannot do what it was asked.

Invariant: whatever keeps a command from its work and has a mend is one sentence on standard error
and exit code 1. What has no mend here is a defect and ends with its traceback.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer

from engine.errors import EngineError
from toolwright.recipe import RecipeError
from toolwright.rpc.errors import ListenError


@contextmanager
def one_sentence() -> Iterator[None]:
    """Ends the process with the first cause's sentence where the block raises an error that has
    one; the error may be inside of nested groups."""
    try:
        yield
    except (RecipeError, EngineError, ListenError, BaseExceptionGroup) as error:
        cause = _leaves(error)[0]
        if not isinstance(cause, RecipeError | EngineError | ListenError):
            raise
        tell_people(f"engine: {cause}")
        sys.exit(1)


def run_on_uvloop(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs the coroutine that `work` makes, on the servers' event loop."""
    from toolwright.loop import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(work())


def tell_people(line: str) -> None:
    """Standard error is for people, standard output for what was asked."""
    typer.echo(line, err=True)


def leave_before_serving(_number: int, _frame: object) -> NoReturn:
    """The handler of SIGTERM until the engine has one of its own."""
    tell_people("engine: told to stop before it served")
    sys.exit(0)


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors inside nested groups; a task that failed arrives in the groups around it."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
