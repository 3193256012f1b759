"""The way into each command: Ctrl-C ends it without a traceback, also while it is imported.

What it imports itself is in the standard library, and little. From `main` on the command decides
what a signal does.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT


def engine() -> None:
    _enter("engine", "engine.cli")


def learner() -> None:
    _enter("learner", "learner.cli")


def toolsvc() -> None:
    _enter("toolsvc", "toolsvc.cli")


def memory() -> None:
    _enter("memory", "memory.cli")


def tasks() -> None:
    _enter("tasks", "tasks.cli")


def bench() -> None:
    _enter("bench", "bench.cli")


def toolwright() -> None:
    _enter("toolwright", "console.cli")


def _enter(program: str, module: str) -> None:
    def leave(_number: int, _frame: object) -> NoReturn:
        os.write(sys.stderr.fileno(), f"{program}: interrupted before it began\n".encode())
        os._exit(INTERRUPTED)  # there is nothing to tidy, and imports swallow exceptions

    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:  # and not ignored, as behind a shell's &
        signal.signal(signal.SIGINT, leave)
    main = import_module(module).main
    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
