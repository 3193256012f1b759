"""Carries out a plan: workload by workload, concurrency by concurrency, mode by mode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import perf_counter

from bench.errors import BenchError
from bench.tools import trial
from bench.tools.load import loops
from bench.tools.load.fleet import Fleet, Shot
from bench.tools.load.servers import Server
from bench.tools.load.usage import proportional_all, resident, tree
from bench.tools.load.workloads import Workload
from bench.tools.plan import SLICES, Plan
from bench.tools.reading.rows import OPENING, Memory, Mode, Row
from bench.tools.trial import Load, Round, Side

HOLD_BURSTS = 2
STEADY_S = 1.0
STEADY_LOOKS = 30

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Where it is measured. `idle_pss`: bytes of the service before any session."""

    service: Server
    floor: Server
    idle_pss: int


async def idle(service: Server) -> int:
    """The bytes of a service that has started and holds nothing, its sandboxes ready."""
    await _steady(service)
    return proportional_all(tree(service.roots))


async def sweep(plan: Plan, servers: Servers, say: Say) -> AsyncIterator[Row]:
    """The rows, as they come. `say`: told what is being done. BenchError when a session cannot
    be had or the floor fails."""
    for workload in plan.workloads:
        async with AsyncExitStack() as stack:
            sides = [
                Side(server=server, fleet=await stack.enter_async_context(fleet))
                for server, fleet in _fleets(servers, workload, say)
            ]
            for concurrency in plan.concurrency:
                name = f"{workload.name}, {concurrency} sessions"
                memory = None
                if plan.holds:
                    for side in sides:
                        await side.fleet.add(concurrency - len(side.fleet))
                    memory = await _memory(servers, concurrency)
                for mode in plan.modes:
                    say(f"{name}: {mode}")
                    if mode in OPENING:
                        row = await _opening(
                            servers, workload, mode, concurrency, say, held=len(sides[0].fleet)
                        )
                        yield _sound(row)
                        continue
                    for rate in plan.rates if mode is Mode.OPEN else (None,):
                        rounds = await _held(plan, mode, workload, sides, rate)
                        row = Row.of(workload.name, mode, concurrency, rounds, memory, rate=rate)
                        yield _sound(row)


def _fleets(servers: Servers, workload: Workload, say: Say) -> list[tuple[Server, Fleet]]:
    service, floor = servers.service, servers.floor

    def progress(count: int) -> None:
        say(f"{workload.name}: {count} sessions are open")

    return [
        (service, Fleet(service.address, workload, token=service.token, progress=progress)),
        (floor, Fleet(floor.address, workload, checked=False)),
    ]


async def _held(
    plan: Plan, mode: Mode, workload: Workload, sides: list[Side], rate: float | None
) -> list[Round]:
    """The rounds of a mode whose sessions are open and warm."""
    ours, floor = sides
    if mode in (Mode.BURST, Mode.SESSIONS):
        for side in sides:
            await loops.burst(side.fleet.warm, len(side.fleet))
        times = plan.bursts if mode is Mode.BURST else HOLD_BURSTS
        return await trial.measure(ours, floor, _burst, times)
    count, seconds = plan.slices(workload)
    # The floor answers at once, whatever is asked: it need not be asked for as long.
    spans = (seconds, plan.seconds / SLICES)
    of = {ours.fleet: spans[0], floor.fleet: spans[1]}
    load = _closed(of) if rate is None else _open(of, rate)
    return await trial.measure(ours, floor, load, count, seconds=spans)


async def _opening(
    servers: Servers, workload: Workload, mode: Mode, count: int, say: Say, *, held: int
) -> Row:
    """`count` new sessions; `held`: how many others are open meanwhile."""

    async def load(fleet: Fleet, _number: int) -> list[Shot]:
        if mode is Mode.RUSH:
            instant = perf_counter()
            return await asyncio.gather(*(fleet.join(instant) for _ in range(count)))
        return [await fleet.join(perf_counter()) for _ in range(count)]

    await _steady(servers.service)
    async with AsyncExitStack() as stack:
        ours, floor = [
            Side(server=server, fleet=await stack.enter_async_context(fleet))
            for server, fleet in _fleets(servers, workload, say)
        ]
        rounds = await trial.measure(ours, floor, load, 1)
        memory = await _memory(servers, held + count)
    return Row.of(workload.name, mode, count, rounds, memory)


def _sound(row: Row) -> Row:
    """BenchError for figures that say nothing: no answer at all, or a floor that fails."""
    for name, figures in (("the service", row.ours), ("the floor", row.floor)):
        if figures.answered == 0 or (figures is row.floor and figures.errors):
            [(fault, count)] = figures.errors.most_common(1)
            raise BenchError(f"{name} failed {count} of {figures.requests} calls: {fault}")
    return row


async def _burst(fleet: Fleet, _number: int) -> list[Shot]:
    return await loops.burst(fleet.call, len(fleet))


def _closed(seconds: dict[Fleet, float]) -> Load:
    return lambda fleet, _number: loops.closed(fleet.call, len(fleet), seconds[fleet])


def _open(seconds: dict[Fleet, float], rate: float) -> Load:
    return lambda fleet, number: loops.opened(
        fleet.call, len(fleet), loops.poisson(rate, seconds[fleet], number)
    )


async def _memory(servers: Servers, sessions: int) -> Memory | None:
    if not servers.service.roots:
        return None
    await _steady(servers.service)
    pids = tree(servers.service.roots)
    return Memory(
        rss=resident(pids),
        pss=proportional_all(pids),
        idle_pss=servers.idle_pss,
        sessions=sessions,
    )


async def _steady(service: Server) -> None:
    """Until no process has come or gone for a while: ready sandboxes are made anew in the
    background when sessions have taken them."""
    seen: list[int] = []
    for _ in range(STEADY_LOOKS):
        before, seen = seen, sorted(tree(service.roots))
        if seen == before:
            return
        await asyncio.sleep(STEADY_S)
