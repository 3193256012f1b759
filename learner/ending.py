"""How the learner's process ends: one sentence on stderr, and the exit status of its error's class.

Under torchrun a status does not reach whoever waits: torchrun makes 1 of every other one. So rank 0
also leaves status and sentence in the file that `ENDED` names, where `learner.launch` reads them.
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
"""Environment variable: the file that rank 0 leaves its status in."""
INTERRUPTED = SIGNALLED + signal.SIGINT
LONGEST = 10_000
"""Characters of a sentence in the file."""


def finish(work: Callable[[], object]) -> None:
    """Does the work; rank 0 prints what it returns. typer.Exit where it fails."""
    if (file := _file()) is not None:
        with suppress(OSError):  # of a life before, which torchrun restarted
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
    """What this process is asked by signals, while the block runs."""
    stop = Stop()
    with stop.listening(_tell):
        yield stop


def fail(error: Exception) -> NoReturn:
    """Ends with the error's sentence and status."""
    _leave(error.status if isinstance(error, LearnerError) else 1, str(error), error)


def is_rank_0() -> bool:
    return os.environ.get("RANK", "0") == "0"


def told(file: Path) -> tuple[int, str] | None:
    """(status, sentence) that rank 0 left in the file; None where it left none."""
    try:
        status, _, sentence = file.read_text(encoding="utf-8", errors="replace").partition(" ")
        return int(status), sentence.strip()
    except (OSError, ValueError):
        return None


def _leave(status: int, sentence: str, cause: Exception | None) -> NoReturn:
    if is_rank_0() or not isinstance(cause, StoppedError):  # all ranks stop, and one says so
        _tell(status, sentence)
    raise typer.Exit(status) from cause


def _tell(status: int, sentence: str) -> None:
    print(f"learner: {sentence}", file=sys.stderr, flush=True)
    if (file := _file()) is not None:
        try:
            file.write_text(f"{status} {sentence[:LONGEST]}\n", encoding="utf-8", errors="replace")
        except OSError as error:
            print(f"learner: {file} cannot be written ({error.strerror})", file=sys.stderr)


def _file() -> Path | None:
    """Where this process leaves its status, if anybody wants it."""
    name = os.environ.get(ENDED)
    return Path(name) if name and is_rank_0() else None
