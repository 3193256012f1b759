"""Does the faults of a schedule to the engine, its neighbours and its disk.

Invariant: a fault that lasts ends by itself, and leaves the world as it found it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from bench.history.events import AnyEvent, FaultEnded
from bench.history.events import Fault as FaultSeen
from bench.simulate.neighbours.channel import Network
from bench.simulate.neighbours.crew import SimulatedCrew
from bench.simulate.neighbours.journal_disk import Disk
from bench.simulate.neighbours.learner import Learner
from bench.simulate.neighbours.sampler import SimulatedServer
from bench.simulate.neighbours.tools import ToolHost
from bench.simulate.schedule import Kind, PlannedFault
from bench.simulate.virtual.loop import BEGIN, loop_here

ON_ENGINE = (Kind.ENGINE_KILL, Kind.ENGINE_STOP)
MOMENT_S = 120.0
"""Longest wait for a fault's event, in virtual seconds; the fault is left out then."""


class Moments:
    """Counts the events of a history by kind, and wakes the faults that wait for one."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._waits: dict[tuple[str, int], list[asyncio.Event]] = {}

    def count(self, event: AnyEvent) -> None:
        name = type(event).__name__
        self._seen[name] += 1
        for wait in self._waits.pop((name, self._seen[name]), ()):
            wait.set()

    async def reach(self, name: str, number: int, complete: asyncio.Event) -> bool:
        """Returns at event `number` of the kind, from 1; False if the run is complete before, or
        the event does not come."""
        if self._seen[name] < number:
            wait = asyncio.Event()
            self._waits.setdefault((name, number), []).append(wait)
            try:
                async with asyncio.timeout(MOMENT_S):
                    await first_of(wait, complete)
            except TimeoutError:
                return False
        return not complete.is_set()


End = Callable[[], Awaitable[None] | None]
"""Ends a fault that lasts."""


@dataclass(kw_only=True)
class FaultPlayer:
    """Does faults to these parts of a run."""

    network: Network
    host: ToolHost
    disk: Disk
    servers: Sequence[SimulatedServer]
    learner: Learner
    moments: Moments
    see: Callable[[AnyEvent], None]
    kill_engine: Callable[[], Awaitable[None]]
    """Ends the life of the engine at once, if there is one."""
    stop_engine: Callable[[], Awaitable[None]]
    """SIGTERM, if there is one."""
    crew: SimulatedCrew
    """The engine's workers, if it has any."""

    def __post_init__(self) -> None:
        self.engine_may_start = asyncio.Event()
        """Set unless a fault keeps the engine away."""
        self.engine_may_start.set()
        self._lasting: Counter[tuple[str, int]] = Counter()
        """FaultPlayer that last now, by what they hold down."""

    async def do(self, fault: PlannedFault) -> None:
        """Waits for the fault's time, does it, and ends it. Of several that hold down the same
        thing the last one ends it."""
        complete = self.learner.complete
        if fault.after and not await self.moments.reach(fault.after, fault.number, complete):
            return
        now = loop_here().time()
        began = now if fault.after else BEGIN
        await asyncio.sleep(max(0.0, began + fault.at - now))
        self.see(FaultSeen(at=loop_here().time(), kind=fault.kind, detail=str(fault)))
        held = "engine" if fault.kind in ON_ENGINE else fault.kind, fault.target
        if fault.kind in (Kind.PUBLISH_BREAKS, Kind.WORKER_STRAY):  # each ends what it broke
            held = str(fault), fault.target
        self._lasting[held] += 1
        end = await self._of_kind()[fault.kind](fault.target)
        if end is not None:
            await asyncio.sleep(fault.seconds)
        self._lasting[held] -= 1
        if end is not None and not self._lasting[held]:
            ending = end()
            if ending is not None:
                await ending
        self.see(FaultEnded(at=loop_here().time(), kind=fault.kind))

    def _of_kind(self) -> dict[Kind, Callable[[int], Awaitable[End | None]]]:
        return {
            Kind.ENGINE_KILL: self._kill_engine,
            Kind.ENGINE_STOP: self._stop_engine,
            Kind.HOST_KILL: self._kill_host,
            Kind.TOOLS_CUT: self._cut_tools,
            Kind.TOOLS_HANG: self._hang_tools,
            Kind.ANSWERS_LOST: self._lose_answers,
            Kind.STREAMS_BREAK: self._break_streams,
            Kind.LEASES_END: self._end_leases,
            Kind.SAMPLER_KILL: self._kill_sampler,
            Kind.SAMPLER_CUT: self._cut_sampler,
            Kind.SAMPLER_FLAKY: self._flaky_sampler,
            Kind.SAMPLER_HANG: self._hang_sampler,
            Kind.SAMPLER_SLOW: self._slow_sampler,
            Kind.SAMPLER_REFUSES: self._refuse_weights,
            Kind.PUBLISH_BREAKS: self._break_publish,
            Kind.DISK_FULL: self._fill_disk,
            Kind.LEARNER_KILL: self._kill_learner,
            Kind.LEARNER_LOOPS: self._loop_learner,
            Kind.LEARNER_STALLS: self._stall_learner,
            Kind.WORKER_KILL: self._kill_worker,
            Kind.WORKER_STRAY: self._part_worker,
            Kind.CREW_CUT: self._cut_crew,
            Kind.CREW_HANG: self._hang_crew,
        }

    async def _kill_engine(self, _target: int) -> End:
        self.engine_may_start.clear()
        await self.kill_engine()
        return self.engine_may_start.set

    async def _stop_engine(self, _target: int) -> End:
        self.engine_may_start.clear()
        await self.stop_engine()
        return self.engine_may_start.set

    async def _kill_host(self, _target: int) -> End:
        await self.host.kill()
        return self.host.start

    async def _cut_tools(self, _target: int) -> End:
        self.network.cut = True
        self.network.break_streams()
        return partial(setattr, self.network, "cut", False)

    async def _hang_tools(self, _target: int) -> End:
        self.network.moves.clear()
        return self.network.moves.set

    async def _lose_answers(self, _target: int) -> End:
        self.network.loses = 0.3
        return partial(setattr, self.network, "loses", 0.0)

    async def _break_streams(self, _target: int) -> None:
        self.network.break_streams()

    async def _end_leases(self, _target: int) -> None:
        self.host.end_leases()

    async def _kill_sampler(self, target: int) -> End:
        self.servers[target].kill()
        return partial(self._start_sampler, target)

    async def _cut_sampler(self, target: int) -> None:
        self.servers[target].break_streams()

    async def _flaky_sampler(self, target: int) -> End:
        self.servers[target].breaks = 0.3
        return partial(setattr, self.servers[target], "breaks", 0.0)

    async def _hang_sampler(self, target: int) -> End:
        self.servers[target].awake.clear()
        return self.servers[target].awake.set

    async def _slow_sampler(self, target: int) -> End:
        self.servers[target].slow = 20.0
        return partial(setattr, self.servers[target], "slow", 1.0)

    async def _refuse_weights(self, target: int) -> End:
        self.servers[target].refuses = True
        return partial(setattr, self.servers[target], "refuses", False)

    async def _break_publish(self, target: int) -> End:
        server = self.servers[target]
        server.breaks_at_update = True
        await first_of(server.broke, self.learner.complete)
        server.breaks_at_update = False
        server.broke.clear()
        return partial(self._start_sampler, target)

    def _start_sampler(self, target: int) -> None:
        if not self.servers[target].alive:  # no publish came, or another fault has ended
            self.servers[target].start()

    async def _fill_disk(self, _target: int) -> End:
        self.disk.fill(True)
        return partial(self.disk.fill, False)

    async def _kill_learner(self, _target: int) -> End | None:
        if self.learner.complete.is_set():
            return None
        await self.learner.kill()
        return self.learner.start

    async def _loop_learner(self, target: int) -> None:
        if self.learner.complete.is_set():
            return
        await self.learner.kill()
        self.learner.end_after_publishes(target)
        self.learner.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(MOMENT_S):
                await first_of(self.learner.stable, self.learner.complete)
        self.learner.end_after_publishes(0)

    async def _kill_worker(self, target: int) -> None:
        await self.crew.kill(target)

    async def _part_worker(self, target: int) -> End | None:
        process = self.crew.part(target)
        return None if process is None else process.bury

    async def _cut_crew(self, _target: int) -> None:
        self.crew.network.break_streams()

    async def _hang_crew(self, _target: int) -> End:
        self.crew.network.moves.clear()
        return self.crew.network.moves.set

    async def _stall_learner(self, _target: int) -> End:
        self.learner.leases.clear()
        return self.learner.leases.set


async def first_of(*events: asyncio.Event) -> None:
    """Returns when one of them is set."""
    waits = [asyncio.ensure_future(one.wait()) for one in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
