"""Errors that end the console's work. Every message is for the user: the fault and the fix.

ConsoleError        1  something failed
|- ProcessFailed    1  a process ended where it should not have
|- ImitationEnded   *  the warm-up ended, with its own status
|- NotReady         1  a process lives and does not answer
|- RecordBroken     1  a file of a run folder is not what engine and learner write
|- NothingStarted   2  recipe or arguments do not fit
|- Taken            5  another process has the run
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from toolwright.page.text import plain


class ConsoleError(Exception):
    """Base of the tree: the command line prints the message and exits with its status."""

    status = 1


class ProcessFailed(ConsoleError):
    """A process ended where it should not have; the message holds the tail of its log."""

    def __init__(self, message: str, *, exit_code: int, said: Sequence[str] = ()) -> None:
        """exit_code: negative = the signal that ended it. said: its last lines."""
        super().__init__(message)
        self.exit_code = exit_code
        self._said = said

    def sentence(self, program: str) -> str:
        """What it ended with, "PROGRAM: ..."; empty where it died without a word. A library may
        have the very last one."""
        begins = f"{program}: "
        found = (line for line in reversed(self._said) if line.startswith(begins))
        return next(found, "").removeprefix(begins)


class ImitationEnded(ConsoleError):
    """The warm-up came to an end that says more than that it failed; status: the learner's."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class NotReady(ConsoleError):
    """A process lives and does not answer in time; the message holds the tail of its log."""


class RecordBroken(ConsoleError):
    """A file of a run folder holds something else than engine and learner write there."""


class NothingStarted(ConsoleError):
    """Recipe or arguments do not fit; no server was started."""

    status = 2


class Taken(ConsoleError):
    """Another console, or another run's server, is where this one would be."""

    status = 5


def fail(sentence: str, status: int) -> int:
    """Says it on standard error; returns the status."""
    with suppress(OSError):
        print(plain(f"toolwright: {sentence}"), file=sys.stderr, flush=True)
    return status


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Ends the command with the sentence and the status of a ConsoleError in the block."""
    try:
        yield
    except ConsoleError as error:
        raise SystemExit(fail(str(error), error.status)) from None
