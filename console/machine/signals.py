"""A signal to a command without running processes ends it at once, with one sentence.

Files are written atomically, or again by the next start, so nothing must be undone. No traceback is
shown.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TOGETHER_S = 1.0
"""Signals this close are one wish: of a terminal that closes the kernel and the shell both tell."""


@contextmanager
def no_traceback() -> Iterator[None]:
    """Around a command's work; code that starts processes meanwhile has handlers of its own."""
    before = {number: signal.signal(number, leave) for number in heeded()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def heeded() -> list[signal.Signals]:
    """What was ignored from the beginning (nohup) stays ignored."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def leave(number: int, _frame: object) -> NoReturn:
    """The handler."""
    os.write(2, f"toolwright: {stopped_by(number)}\n".encode())
    os._exit(128 + number)


def stopped_by(number: int) -> str:
    """The sentence of a run that a signal ended."""
    return f"stopped by {signal.Signals(number).name}; the same command goes on"
