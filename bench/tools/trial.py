"""Measures one load on the service and on the bare floor, in turn, and gives the windows.

Invariants
- Sessions are open and warm, garbage is collected and the collector switched off before a clock
  starts.
- Service and floor are measured one right after the other, never at the same time, the same
  number of times, by the same client.
- Metering costs nothing within a window: processes are looked at before and after it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from bench.tools.load.fleet import Fleet, Shot
from bench.tools.load.servers import Server
from bench.tools.load.usage import cpu_seconds
from bench.tools.reading.figures import Window

SETTLE_S = 0.05
"""After the last answer, within what CPU time is counted of: what a server still does for it."""

Load = Callable[[Fleet, int], Awaitable[list[Shot]]]
"""What is done to the sessions of one side; the number of the round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A server and the sessions that are open there."""

    server: Server
    fleet: Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The same load on both, one right after the other."""

    ours: Window
    floor: Window


async def measure(
    ours: Side,
    floor: Side,
    load: Load,
    rounds: int,
    *,
    seconds: tuple[float, float] | None = None,
) -> list[Round]:
    """`rounds` times `load`. `seconds`: how long it lasts on the service and on the floor, where
    it does not end by itself."""
    found = []
    for number in range(rounds):
        windows = [
            await _observe(side, load, number, seconds[index] if seconds else None)
            for index, side in enumerate((ours, floor))
        ]
        found.append(Round(ours=windows[0], floor=windows[1]))
    return found


async def _observe(side: Side, load: Load, number: int, seconds: float | None) -> Window:
    roots = side.server.roots
    with _no_collector():
        servers = cpu_seconds(roots)
        client = time.process_time()
        began = perf_counter()
        shots = await load(side.fleet, number)
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
