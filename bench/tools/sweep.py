"""Carries out a plan: each workload at each concurrency in each mode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import perf_counter

from bench.errors import BenchError
from bench.measuring.usage import proportional_all, resident, tree
from bench.tools import trial
from bench.tools.load import loops
from bench.tools.load.fleet import Fleet, Shot
from bench.tools.load.servers import Server
from bench.tools.load.workloads import ToolWorkload
from bench.tools.plan import SLICES, SweepPlan
from bench.tools.reading.rows import OPENING, Memory, Mode, ToolRow
from bench.tools.trial import Load, Round

HOLD_BURSTS = 2
STEADY_S = 1.0
STEADY_LOOKS = 30

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The servers of a sweep."""

    service: Server
    floor: Server
    idle_pss: int
    """Bytes of the service before any session."""


async def idle(service: Server) -> int:
    """Bytes of a service without sessions, once its sandboxes are ready."""
    await _steady(service)
    return proportional_all(tree(service.roots))


async def sweep(plan: SweepPlan, servers: Servers, say: Say) -> AsyncIterator[ToolRow]:
    """The rows, one after another. say: receives the current work. Raises BenchError if a session
    is refused or the floor fails."""
    for workload in plan.workloads:
        async with AsyncExitStack() as stack:
            ours, floor = await _fleets(servers, workload, say, stack)
            for concurrency in plan.concurrency:
                memory = None
                if plan.holds:
                    for fleet in (ours, floor):
                        await fleet.add(concurrency - len(fleet))
                    memory = await _memory(servers, concurrency)
                for mode in plan.modes:
                    say(f"{workload.name}, {concurrency} sessions: {mode}")
                    if mode in OPENING:
                        yield await _opening(
                            servers, workload, mode, concurrency, say, held=len(ours)
                        )
                        continue
                    for rate in plan.rates if mode is Mode.OPEN else (None,):
                        rounds = await _held(plan, mode, workload, ours, floor, rate)
                        yield _sound(
                            ToolRow.of(workload.name, mode, concurrency, rounds, memory, rate=rate)
                        )


async def _fleets(
    servers: Servers, workload: ToolWorkload, say: Say, stack: AsyncExitStack
) -> tuple[Fleet, Fleet]:
    """Fleets of service and floor without sessions."""

    def progress(count: int) -> None:
        say(f"{workload.name}: {count} sessions are open")

    ours = Fleet(servers.service, workload, progress=progress)
    floor = Fleet(servers.floor, workload, checked=False)
    return await stack.enter_async_context(ours), await stack.enter_async_context(floor)


async def _held(
    plan: SweepPlan,
    mode: Mode,
    workload: ToolWorkload,
    ours: Fleet,
    floor: Fleet,
    rate: float | None,
) -> list[Round]:
    """The rounds of a mode whose sessions are open and warm."""
    if mode in (Mode.BURST, Mode.SESSIONS):
        for fleet in (ours, floor):
            await loops.burst(fleet.warm, len(fleet))
        times = plan.bursts if mode is Mode.BURST else HOLD_BURSTS
        return await trial.measure(ours, floor, _burst, times)
    count, seconds = plan.slices(workload)
    # The floor answers at once: it needs no longer slices for calls that sleep.
    lengths = (seconds, plan.seconds / SLICES)
    load = _loop({ours: lengths[0], floor: lengths[1]}, rate)
    return await trial.measure(ours, floor, load, count, seconds=lengths)


async def _opening(
    servers: Servers, workload: ToolWorkload, mode: Mode, count: int, say: Say, *, held: int
) -> ToolRow:
    """The row of `count` new sessions. held: number of other sessions that are open."""

    async def load(fleet: Fleet, _number: int) -> list[Shot]:
        if mode is Mode.RUSH:
            instant = perf_counter()
            return await asyncio.gather(*(fleet.join(instant) for _ in range(count)))
        return [await fleet.join(perf_counter()) for _ in range(count)]

    await _steady(servers.service)
    async with AsyncExitStack() as stack:
        ours, floor = await _fleets(servers, workload, say, stack)
        rounds = await trial.measure(ours, floor, load, 1)
        memory = await _memory(servers, held + count)
    return _sound(ToolRow.of(workload.name, mode, count, rounds, memory))


def _sound(row: ToolRow) -> ToolRow:
    """Raises BenchError for a row without an answer, or whose floor failed."""
    for name, figures in (("the service", row.ours), ("the floor", row.floor)):
        if figures.answered == 0 or (figures is row.floor and figures.errors):
            [(fault, count)] = figures.errors.most_common(1)
            raise BenchError(f"{name} failed {count} of {figures.requests} calls: {fault}")
    return row


async def _burst(fleet: Fleet, _number: int) -> list[Shot]:
    return await loops.burst(fleet.call, len(fleet))


def _loop(seconds: dict[Fleet, float], rate: float | None) -> Load:
    """A closed loop, or an open loop with calls at `rate` a second."""
    if rate is None:
        return lambda fleet, _number: loops.closed(fleet.call, len(fleet), seconds[fleet])
    return lambda fleet, number: loops.opened(
        fleet.call, len(fleet), loops.poisson(rate, seconds[fleet], number)
    )


async def _memory(servers: Servers, sessions: int) -> Memory | None:
    if not servers.service.roots:
        return None
    await _steady(servers.service)
    pids = tree(servers.service.roots)
    return Memory(
        rss=resident(pids), pss=proportional_all(pids), idle_pss=servers.idle_pss, sessions=sessions
    )


async def _steady(service: Server) -> None:
    """Returns once the service's processes do not change for a while: it replaces ready sandboxes
    in the background."""
    seen: list[int] = []
    for _ in range(STEADY_LOOKS):
        before, seen = seen, sorted(tree(service.roots))
        if seen == before:
            return
        await asyncio.sleep(STEADY_S)
