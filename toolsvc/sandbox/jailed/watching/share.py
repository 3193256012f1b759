"""How much of the machine's processors one session may claim against others.

The kernel shares processors out by threads: sixty threads get sixty shares. A control group for
each session would prevent that, but needs rights that a tool service seldom has; priorities need no
rights. So a session that computes on more than two threads has all of them lowered until
together they weigh no more than two.

A lowered session still gets what no other process wants. The kernel lets only root raise a priority
again, so what was lowered stays lowered until it ends, with all that it starts.
"""

from __future__ import annotations

import contextlib
import os

from . import measure

THREADS = 2
"""Threads of one session that may compute at full priority: two parts of a pipeline, say."""
_STEP = 0.8
"""What a thread weighs against one whose niceness is one less (the kernel's table)."""
_MOST = 19


def niceness(running: int) -> int:
    """Niceness at which `running` threads weigh no more than `THREADS` at niceness 0."""
    lowered = 0
    while lowered < _MOST and running * _STEP**lowered > THREADS:
        lowered += 1
    return lowered


def lower(processes: list[measure.Process], wanted: int) -> None:
    """All threads of all of them, whether they compute or not: what they start inherits it."""
    for process in processes:
        for thread in measure.threads(process.pid):
            with contextlib.suppress(OSError):  # It has ended.
                if os.getpriority(os.PRIO_PROCESS, thread) < wanted:
                    os.setpriority(os.PRIO_PROCESS, thread, wanted)
