"""`engine work`: the process of one worker. It has no disk: its coordinator keeps everything.

The coordinator starts it and assigns groups and rows of evaluations. The worker samples, calls
tools and scores; its events and records go to the coordinator (`reports.py`).

Invariants
- It ends with its coordinator, however that ends.
- After the end of its lease it sends no request: it ends at once (`lease_clock.py`).
- Told to stop, it leaves the tool sessions of what is in flight open, for a later life.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import structlog

from engine.config import EngineTable
from engine.core.build import build_group_hook
from engine.core.engine_core import EngineCore, TaskCore
from engine.errors import StartupError
from engine.serving import gc_policy
from engine.serving.admission.places import Places
from engine.serving.crew.in_process import InProcessCrew
from engine.serving.crew.statistics import WorkerStatistics, worker_statistics
from engine.serving.seams import Seams
from engine.serving.telemetry.logs import bind_run
from engine.serving.worker.assignments import Assignments
from engine.serving.worker.connection import Connect, Connection
from engine.serving.worker.credentials import read_credentials
from engine.serving.worker.following_pool import FollowingPool
from engine.serving.worker.lease_clock import LeaseClock
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.process.stderr_log import log_to_stderr
from toolwright.recipe import recipe_from_resolved
from toolwright.rpc.channel import open_channel

BEAT_S = 1.0
DURABLE_S = 10.0
"""Longest wait at the end until the last reports are on the coordinator's disk."""
TOOLS_AWAY_S = 1.0
"""Interval between checks for tool services at the start."""
LEASE_ENDED = 3
"""Exit code of a worker whose lease ended."""

log = structlog.get_logger("worker")


async def work(coordinator: str, name: str) -> None:
    """Works for the coordinator until it says stop, or is gone. Reads the credentials first."""
    log_to_stderr()
    await Worker(coordinator, name, connect=read_credentials().connect).run()


def end_process() -> NoReturn:
    """Ends this process at once: what it was assigned may be at another worker."""
    log.error("lease_ended", fix="nothing: the coordinator has assigned the work anew")
    os._exit(LEASE_ENDED)


class Worker:
    """One worker; `run` it once."""

    def __init__(
        self,
        coordinator: str,
        name: str,
        *,
        connect: Connect = open_channel,
        seams: Seams | None = None,
        end: Callable[[], NoReturn] = end_process,
    ) -> None:
        """coordinator: its address. name: of this life of the worker. connect, seams: replace gRPC
        and HTTP, for the simulator. end: ends the process with its lease."""
        self._connection = Connection(coordinator, name, connect)
        self._seams = seams or Seams()
        self._lease = LeaseClock(end)
        self._setup: asyncio.Future[pb.Setup] = asyncio.get_running_loop().create_future()
        self._samplers: pb.Samplers | None = None
        self._early: list[pb.WorkResponse] = []
        """Messages that came before the worker was ready."""
        self._pool: FollowingPool | None = None
        self._assignments: Assignments | None = None
        self._stop = asyncio.Event()
        self._confirmed = asyncio.Event()

    async def run(self) -> None:
        """Returns after Stop, when all that happened is on the coordinator's disk."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._connection.close)
            async with asyncio.TaskGroup() as tasks:
                around = [
                    tasks.create_task(self._connection.run(self._handle)),
                    tasks.create_task(self._beat()),
                ]
                core = await self._assemble(stack, await self._setup)
                around += [
                    tasks.create_task(core.sampler.keep_alive()),
                    *(tasks.create_task(one) for one in self._watch()),
                ]
                self._lease.begin()
                self._connection.set_ready()
                for message in self._early:
                    self._take(message)
                self._early = []
                await self._stop.wait()
                await self._end(core)
                for task in around:
                    task.cancel()

    def _watch(self) -> list[Coroutine[Any, Any, None]]:
        """Coroutines that run beside the work, once the start is done."""
        gc_policy.settle()
        return [gc_policy.collect(lambda: self._in_flight)]

    @property
    def _in_flight(self) -> int:
        return 0 if self._assignments is None else self._assignments.running

    async def _assemble(self, stack: AsyncExitStack, setup: pb.Setup) -> EngineCore:
        recipe = recipe_from_resolved(setup.recipe, Path("the coordinator's recipe"))
        table = recipe.table("engine", EngineTable)
        bind_run(setup.owner)
        core = EngineCore(
            recipe,
            table,
            stack,
            connect_sampler=self._seams.samplers,
            connect_tools=self._seams.tools,
            make_pool=FollowingPool,
        )
        pool = await core.open_pool()
        assert isinstance(pool, FollowingPool)
        pool.name_requests(setup.request_life)
        pool.on_fault = self._report_fault
        pool.before_request = self._lease.check
        await self._open_tools(core, setup)
        for service in core.tools.services.values():
            service.link.before_request = self._lease.check
        self._connection.tools = core.tools
        self._core = core
        crews = {
            name: self._crew(setup, core, name, task, table) for name, task in core.tasks.items()
        }
        self._assignments = Assignments(crews, self._connection.reports, self._connection.blob)
        self._pool = pool
        if self._samplers is not None:
            self._follow(self._samplers)
        return core

    async def _open_tools(self, core: EngineCore, setup: pb.Setup) -> None:
        """Opens the tool services as soon as all answer. The coordinator has checked them, and a
        worker may start amid an outage."""
        while True:
            try:
                await core.open_tools(
                    setup.owner, life=setup.session_life, started=setup.tool_addresses
                )
            except StartupError as error:
                log.warning("tools_away", error=str(error))
                await asyncio.sleep(TOOLS_AWAY_S)
            else:
                return

    def _crew(
        self, setup: pb.Setup, core: EngineCore, name: str, task: TaskCore, table: EngineTable
    ) -> InProcessCrew:
        own, reports = task.recipe.shared, self._connection.reports
        return InProcessCrew(
            rollout_context=core.rollout_context(name),
            rewards=task.rewards,
            hook=build_group_hook(task.recipe),
            places=Places(0),
            life=setup.attempt_life,
            patience=table.patience_s,
            keeper=reports.append,
            forget=reports.forget,
            stored=self._connection.blob,
            branching=own.task.branching,
            seed=own.run.seed,
            metadata=own.task.metadata,
            happened=reports.happened,
        )

    async def _handle(self, message: pb.WorkResponse) -> None:
        kind = message.WhichOneof("message")
        if kind == "setup":
            if not self._setup.done():
                self._setup.set_result(message.setup)
        elif kind == "samplers":
            self._samplers = message.samplers
            if self._pool is not None:
                self._follow(message.samplers)
        elif kind == "durable":
            self._connection.reports.confirmed(message.durable.sequence)
            self._confirmed.set()
        elif kind == "lease":
            self._lease.granted(message.lease.beat, message.lease.seconds)
            if self._pool is not None:
                self._pool.follow_loads(message.lease.others)
        elif self._assignments is None:
            self._early.append(message)
        else:
            self._take(message)

    def _take(self, message: pb.WorkResponse) -> None:
        """Handles a message about the work itself."""
        if self._assignments is None:
            raise AssertionError("the worker is not ready")
        match message.WhichOneof("message"):
            case "assignment":
                self._assignments.begin(message.assignment)
            case "earlier":
                self._assignments.earlier(message.earlier)
            case "places":
                self._assignments.grant(message.places)
            case "cut":
                self._assignments.cut(message.cut.assignment)
            case "drain":
                self._assignments.drain()
            case "lost_session":
                lost = message.lost_session
                session = self._core.tools.services[lost.service].sessions.get(lost.session_id)
                if session is not None:
                    session.mark_lost()
            case "stop":
                self._stop.set()

    def _follow(self, state: pb.Samplers) -> None:
        if self._pool is not None:
            self._pool.follow_state(state)
        self._connection.samplers_seen(state.number)

    def _report_fault(self, sampler: str, why: str) -> None:
        fault = pb.SamplerFault(sampler=sampler, why=why)
        self._connection.send(pb.WorkRequest(sampler_fault=fault))

    async def _beat(self) -> None:
        while True:
            statistics = b""
            if self._pool is not None:
                found: WorkerStatistics = worker_statistics(
                    self._pool, self._core.tools, self._core.failures
                )
                statistics = msgspec.json.encode(found)
            beat = pb.Beat(number=self._lease.beat(), statistics=statistics)
            self._connection.send(pb.WorkRequest(beat=beat))
            await asyncio.sleep(BEAT_S)
            self._lease.check()

    async def _end(self, core: EngineCore) -> None:
        """Leaves what is in flight to a later life, and returns when its events are on disk."""
        core.tools.keep_sessions_open()
        if self._assignments is not None:
            await self._assignments.stop()
        self._connection.flush()
        deadline = time.monotonic() + DURABLE_S
        while self._connection.reports.unconfirmed and time.monotonic() < deadline:
            self._confirmed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._confirmed.wait()
