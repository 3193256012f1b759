"""The end of the learner's process: one sentence on stderr, and the exit status of the error.

torchrun turns every status other than 0 into 1. So rank 0 also writes status and sentence into the
file that `ENDED` names, and `learner.launch` reads them there.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import typer

from learner.errors import LearnerError, StoppedError
from learner.stop import SIGNALLED, Stop

ENDED = "TOOLWRIGHT_LEARNER_ENDED"
"""Environment variable: file that rank 0 writes its status into."""
INTERRUPTED = SIGNALLED + signal.SIGINT
LONGEST = 10_000
"""Largest size of the sentence in the file, in characters."""


def finish(work: Callable[[], object]) -> None:
    """Does the work; rank 0 prints its result. Raises typer.Exit if the work fails."""
    if (file := _file()) is not None:
        with suppress(OSError):  # of an earlier attempt, which torchrun restarted
            file.unlink()
    try:
        last = work()
    except (LearnerError, OSError) as error:
        fail(error)
    except KeyboardInterrupt:
        _leave(
            INTERRUPTED, "interrupted; the same command goes on from the newest checkpoint", None
        )
    if is_rank_0():
        print(last)


@contextmanager
def listening() -> Iterator[Stop]:
    """The stop requests of this process while the block runs."""
    stop = Stop()
    with stop.listening(_report):
        yield stop


def fail(error: Exception) -> NoReturn:
    """Ends with the error's sentence and status."""
    _leave(error.status if isinstance(error, LearnerError) else 1, str(error), error)


def is_rank_0() -> bool:
    return os.environ.get("RANK", "0") == "0"


def read_ending(file: Path) -> tuple[int, str] | None:
    """(status, sentence) that rank 0 wrote into the file; None if it wrote nothing."""
    try:
        status, _, sentence = file.read_text(encoding="utf-8", errors="replace").partition(" ")
        return int(status), sentence.strip()
    except (OSError, ValueError):
        return None


def _leave(status: int, sentence: str, cause: Exception | None) -> NoReturn:
    if is_rank_0() or not isinstance(cause, StoppedError):  # all ranks stop, and one reports it
        _report(status, sentence)
    raise typer.Exit(status) from cause


def _report(status: int, sentence: str) -> None:
    print(f"learner: {sentence}", file=sys.stderr, flush=True)
    if (file := _file()) is not None:
        try:
            file.write_text(f"{status} {sentence[:LONGEST]}\n", encoding="utf-8", errors="replace")
        except OSError as error:
            print(f"learner: {file} cannot be written ({error.strerror})", file=sys.stderr)


def _file() -> Path | None:
    """The file for this process's status; None if no launcher reads one."""
    name = os.environ.get(ENDED)
    return Path(name) if name and is_rank_0() else None
