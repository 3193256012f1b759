"""Measures one load on the service and on the floor in turn.

Invariants
- Sessions are open and warm, garbage is collected and the collector is off before a clock starts.
- The same client measures service and floor the same number of times, one after the other.
- Processes are inspected before and after a window, never within it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from bench.measuring.usage import cpu_seconds
from bench.tools.load.fleet import Fleet, Shot
from bench.tools.reading.figures import Window

SETTLE_S = 0.05
"""Part of a window after the last answer: a server still works for it."""

Load = Callable[[Fleet, int], Awaitable[list[Shot]]]
"""Calls of one round in the sessions of a fleet. The second argument is the round's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The same load on service and floor."""

    ours: Window
    floor: Window


async def measure(
    ours: Fleet,
    floor: Fleet,
    load: Load,
    rounds: int,
    *,
    seconds: tuple[float, float] | None = None,
) -> list[Round]:
    """Puts the load on both, `rounds` times. seconds: length of the load on service and floor, if
    the load does not end by itself."""
    lengths = seconds or (None, None)
    return [
        Round(
            ours=await _observe(ours, load, number, lengths[0]),
            floor=await _observe(floor, load, number, lengths[1]),
        )
        for number in range(rounds)
    ]


async def _observe(fleet: Fleet, load: Load, number: int, seconds: float | None) -> Window:
    roots = fleet.server.roots
    with _no_collector():
        servers = cpu_seconds(roots)
        client = time.process_time()
        began = perf_counter()
        shots = await load(fleet, number)
        ended = max((shot.answered for shot in shots), default=perf_counter())
        await asyncio.sleep(SETTLE_S)
        client = time.process_time() - client
        servers = cpu_seconds(roots) - servers
    return Window(
        began=began,
        seconds=ended - began if seconds is None else seconds,
        shots=shots,
        client_cpu_s=client,
        server_cpu_s=servers if roots else None,
    )


@contextmanager
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
