"""When Python's garbage collector runs: seldom, and in full only where nobody waits for it.

A full collection looks at every object of every trajectory in flight, with the event loop standing
still: 1.1 s at 4,096 trajectories. Nearly all garbage of the engine is freed by reference counts.

Invariants
- What the start made (modules, classes, the tokenizer) is never looked at again.
- Young objects are collected by themselves, in steps of some milliseconds.
- Everything is collected while nothing is in flight, and else every `FULL_SECONDS`: cycles that a
  failed attempt or a recipe's function leaves do not add up.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

YOUNG = 20_000
"""New objects that wait for a collection of the young ones, 700 by default."""
MIDDLE = 20
"""Collections of the young ones before the survivors of all of them are looked at."""
NEVER = 1_000_000
FULL_SECONDS = 600.0
LOOK_SECONDS = 5.0


def settle() -> None:
    """To be called once the start is done."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, NEVER)


async def collect(in_flight: Callable[[], int]) -> None:
    """Full collections; runs until cancelled. `in_flight`: trajectories."""
    last, clean = time.monotonic(), True
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        idle = not in_flight()
        if (idle and not clean) or time.monotonic() - last >= FULL_SECONDS:
            gc.collect()
            last = time.monotonic()
        clean = idle
