"""One run: lives of the engine among simulated neighbours, faults, and the history of all.

Invariants
- After the last fault nothing stays broken, and the run gets `BOUND_S` to end.
- An engine that ended by itself or by a fault is started again, at most `MOST_LIVES` times.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec

from bench.history.events import (
    Admitted,
    AnyEvent,
    Dispatched,
    FaultsOver,
    Finished,
    History,
    LifeBegan,
    LifeEnded,
    Offered,
    Planned,
    RewardCalled,
)
from bench.history.run_folder import evaluations, positions, surviving
from bench.simulate.neighbours.channel import Network
from bench.simulate.neighbours.crew import SimulatedCrew
from bench.simulate.neighbours.ingress_channel import IngressNetwork
from bench.simulate.neighbours.journal_disk import Disk
from bench.simulate.neighbours.learner import Learner
from bench.simulate.neighbours.sampler import SimulatedClient, SimulatedServer
from bench.simulate.neighbours.tools import ToolHost
from bench.simulate.playing.engine_life import EngineLife
from bench.simulate.playing.faults import FaultPlayer, Moments
from bench.simulate.schedule import Schedule
from bench.simulate.virtual.loop import VirtualLoop, stray_here
from bench.simulate.workload import LEASE_S, REWARD_WITNESSES, server_url
from engine.config import EngineTable
from engine.errors import EngineError
from engine.serving.seams import Seams
from toolwright.recipe import Recipe

BOUND_S = 900.0
"""Virtual seconds from the end of the last fault to the end of the run."""
END_S = 120.0
"""Time for the end of the engine and of leases, in virtual seconds."""
STOP_S = 60.0
"""Longest time from SIGTERM to the end of an engine, in virtual seconds."""
RESTART_S = 1.0
"""Pause before an engine that ended by itself is started again, in virtual seconds."""
MOST_LIVES = 30
"""Lives of the engine after which its supervisor gives up."""


class Run:
    """Call `play` once."""

    def __init__(self, schedule: Schedule, loop: VirtualLoop, made: Recipe, policy: Path) -> None:
        self.history: History = []
        self.notes: list[str] = []
        self.errors: list[str] = []
        self._schedule = schedule
        self._loop = loop
        self._recipe = made
        self._table = made.table("engine", EngineTable)
        seed, work = schedule.seed, schedule.workload
        self._servers = [
            SimulatedServer(server_url(number), work, Random(f"server {number} {seed}"), self.see)
            for number in range(work.servers)
        ]
        for number, server in enumerate(self._servers):
            loop.hosts[f"sampler-{number}"] = server.connect
        self._network = Network(Random(f"network {seed}"))
        self._network.sent = self._dispatched
        self._ingress: IngressNetwork | None = None
        """The way of outside agents to the engine; None without them."""
        self._host = ToolHost(work, self._network, Random(f"tools {seed}"), self.see)
        self._disk = Disk(Random(f"disk {seed}"), self.see)
        self._seams = Seams(
            samplers=self._client, tools=self._network.channel, journal=self._disk.drive
        )
        self._crew = SimulatedCrew(
            Random(f"crew {seed}"),
            self._seams,
            tools=self._network,
            servers=self._servers,
            errors=self.errors,
            see=self.see,
        )
        self._life: EngineLife | None = None
        self._moments = Moments()
        self._lives = 0
        self._starts_at = 0.0
        self._ending = False
        self._bound: tuple[int, int, int] | None = None
        self._learner = Learner(
            work, policy, Random(f"learner {seed}"), lambda: self._life, self._saw_at_learner
        )
        self._faults = FaultPlayer(
            network=self._network,
            host=self._host,
            disk=self._disk,
            servers=self._servers,
            learner=self._learner,
            moments=self._moments,
            see=self.see,
            kill_engine=self._kill,
            stop_engine=self._terminate,
            crew=self._crew,
        )

    def see(self, event: AnyEvent) -> None:
        self.history.append(event)
        self._moments.count(event)

    @property
    def _now(self) -> float:
        return self._loop.now

    async def play(self) -> None:
        work = self._schedule.workload
        self.see(
            Planned(
                at=self._now,
                eta=work.eta,
                batch=work.batch,
                group_size=work.group_size,
                steps=work.steps,
                stateful=work.stateful,
                turns=work.turns,
                lease_s=LEASE_S,
                tools_patience=work.patience_s,
                sampler_patience=work.sampler_patience_s,
            )
        )
        self._loop.after_turn = self._look
        REWARD_WITNESSES[:] = [self._scored]
        await self._host.start()
        supervising = asyncio.create_task(self._supervise())
        self._learner.start()
        async with asyncio.TaskGroup() as faults:
            for fault in self._schedule.faults:
                faults.create_task(self._faults.do(fault))
        self.see(FaultsOver(at=self._now, bound=BOUND_S + END_S))
        complete = True
        try:
            async with asyncio.timeout(BOUND_S):
                await self._learner.complete.wait()
        except TimeoutError:
            complete = False
        await self._end(supervising, complete=complete)

    async def _end(self, supervising: asyncio.Task[None], *, complete: bool) -> None:
        self._ending = True
        places, flights, tasks = 0, 0, list[str]()
        supervising.cancel()
        await asyncio.gather(supervising, return_exceptions=True)
        life = self._life
        if life is not None:
            tasks = await self._stop(life)
            places = life.engine.places if life.engine.servicers else 0
            flights = life.engine.flights if life.engine.servicers else 0
            await asyncio.sleep(2.0)  # what a close has begun at the host ends there
        await self._learner.kill()
        await asyncio.sleep(15.0)  # a lease: sessions that are still open are reaped
        found = Finished(
            at=self._now,
            complete=complete,
            sessions=self._host.open_sessions,
            requests=max(flights, sum(len(server.requests) for server in self._servers)),
            places=places,
            tasks=len(tasks),
        )
        await self._host.stop()
        self.errors += [f"a task outlived the run: {name}" for name in tasks]
        self.notes += self._learner.ended_by
        self.errors += self._learner.crashes
        folder, trained = self._recipe.run_folder, surviving(self.history)
        suites = {suite.name: suite.n for suite in self._table.evaluation.suites}
        cut = self._schedule.workload.may_be_cut
        self.history += evaluations(folder, at=self._now, expected=suites, may_be_cut=cut)
        self.history += positions(folder, at=self._now, trained=trained)
        self.see(msgspec.structs.replace(found, at=self._now))

    # ---- the engine's lives ----

    async def _supervise(self) -> None:
        """Starts the engine each time that it is dead and no fault holds it down."""
        while self._lives < MOST_LIVES:
            await self._faults.engine_may_start.wait()
            self._begin()
            life = self._life
            assert life is not None
            await asyncio.wait({life.task, life.owner.gone}, return_when=asyncio.FIRST_COMPLETED)
            if life.owner.alive:
                self._ended_by_itself(life)
                await self._over(life, killed=False)
                await asyncio.sleep(RESTART_S)
            await life.buried.wait()

    def _begin(self) -> None:
        self._life = EngineLife(
            self._lives,
            self._recipe,
            self._table,
            replace(self._seams, crew=self._crew),
            self._ingress,
            self._schedule.workload.workers,
        )
        self.see(LifeBegan(at=self._now, life=self._lives))
        self._lives += 1
        self._bound = None

    def _client(self, url: str) -> SimulatedClient:
        (server,) = (one for one in self._servers if one.url == url)
        return SimulatedClient(server, silence=self._recipe.shared.sampler.timeout_s)

    def _ended_by_itself(self, life: EngineLife) -> None:
        error = life.task.exception() if not life.task.cancelled() else None
        if error is not None:
            first = _first(error)
            known = self.notes if isinstance(first, EngineError) else self.errors
            known.append(f"engine {life.number} ended: {first!r}")

    async def _kill(self) -> None:
        if self._life is not None and self._life.owner.alive:
            await self._over(self._life, killed=True)

    async def _terminate(self) -> None:
        if self._life is not None and self._life.owner.alive:
            await self._stop(self._life)

    async def _stop(self, life: EngineLife) -> list[str]:
        """SIGTERM, and SIGKILL if that takes too long. Returns tasks that outlived the engine."""
        outlived: list[str] = []
        life.engine.stop()
        await asyncio.wait({life.task, life.owner.gone}, timeout=STOP_S)
        if life.owner.alive:
            if not life.task.done():
                self.errors.append(f"engine {life.number} did not stop within {STOP_S:g} s")
            else:
                self._ended_by_itself(life)
                outlived = life.owner.names()
            await self._over(life, killed=not life.task.done())
        return outlived

    async def _over(self, life: EngineLife, *, killed: bool) -> None:
        """The process is gone; when this returns nothing of it is left."""
        if self._ingress is not None:
            self._ingress.gone()
        self._network.client_died(life.owner)
        life.owner.die()
        if self._disk.drivers and self._life is life:
            self._disk.drivers[-1].crash()
        for server in self._servers:
            server.client_died(life.owner)
        await self._crew.coordinator_died()
        lost = bool(self._disk.drivers) and self._disk.drivers[-1].lost
        self.see(LifeEnded(at=self._now, life=life.number, killed=killed or lost))
        left = await life.owner.buried()
        self.errors += [f"engine {life.number}: a task did not end: {name}" for name in left]
        if self._life is life:
            self._life = None
        life.buried.set()

    # ---- witnesses ----

    def _look(self) -> None:
        life = self._life
        if life is None or not life.serves or self._ending:
            return
        bound = life.engine.bound()
        if bound != self._bound:
            self._bound = bound
            step, accepted, running = bound
            self.see(Admitted(at=self._now, step=step, accepted=accepted, running=running))

    def _dispatched(self, call_id: str) -> None:
        life = self._life
        if stray_here():
            return  # the history shows what it does to the neighbours
        if life is not None and life.owner.alive:
            attempt = call_id.rsplit("/", 2)[0]
            self.see(Dispatched(at=self._now, life=life.number, attempt=attempt, call_id=call_id))

    def _scored(self, event: RewardCalled) -> None:
        if not stray_here():
            self.see(event)

    def _saw_at_learner(self, event: AnyEvent) -> None:
        self.see(self._completed(event) if isinstance(event, Offered) else event)

    def _completed(self, offered: Offered) -> Offered:
        """With what the journal knows and the wire does not carry."""
        db = self._disk.drivers[-1].writer.db
        (stored,) = db.execute(
            "SELECT hash FROM groups WHERE sequence = ?", (offered.sequence,)
        ).fetchone()
        names = db.execute(
            "SELECT attempt FROM members WHERE sequence = ? ORDER BY number", (offered.sequence,)
        ).fetchall()
        members = tuple(
            msgspec.structs.replace(member, attempt=attempt)
            for member, (attempt,) in zip(offered.members, names, strict=True)
        )
        return msgspec.structs.replace(offered, members=members, stored_hash=stored)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
