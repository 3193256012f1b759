"""When Python's garbage collector runs: seldom, and in full only while nothing is in flight.

A full collection visits every object of every trajectory in flight while the event loop stands
still: 1.1 s at 4,096 trajectories. Reference counts free nearly all garbage of the engine.

Invariants
- Objects from the start (modules, classes, the tokenizer) are never visited again.
- Young objects are collected separately, in steps of some milliseconds.
- Everything is collected while nothing is in flight, and otherwise every `FULL_SECONDS`. So cycles
  of failed attempts or of a recipe's functions do not add up.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

YOUNG = 20_000
"""New objects before a collection of the young ones; the default is 700."""
MIDDLE = 20
"""Collections of young objects before the survivors of all of them are visited."""
NEVER = 1_000_000
FULL_SECONDS = 600.0
LOOK_SECONDS = 5.0


def settle() -> None:
    """Must be called once the start is done."""
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
