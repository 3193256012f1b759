"""Assembles the engine and runs it until it is stopped.

Order at the start: journal, tokenizer, samplers, tool services, then every sampler is brought to
the newest version. Only then is anything admitted. Order at the end: admissions stop, trajectories
in flight get their grace time, sessions are closed, the journal is closed last.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import structlog

from engine.config import EngineTable
from engine.core.branching.branching_checks import branching_warnings
from engine.core.build import (
    build_group_hook,
    build_sampling,
    open_source,
    refuse_api,
)
from engine.core.engine_core import EngineCore, TaskCore
from engine.core.rehearsal import first_that_fits
from engine.core.sampler.adapters import refuse_without_adapters
from engine.core.sampler.control import WeightControl
from engine.core.sampler.memory import refuse_kept_memory
from engine.core.sampler.pool import SamplerPool
from engine.core.tasks import BadRows, TaskSource
from engine.errors import PublishFailed, StartupError
from engine.serving import gc_policy
from engine.serving.admission.cache_gate import LOOK_S, CacheGate
from engine.serving.admission.cache_limit import CacheLimit
from engine.serving.admission.dynamic_sampling import GroupFilter
from engine.serving.admission.mixing import Mixture
from engine.serving.admission.places import Places
from engine.serving.admission.submitted import Submissions, SubmittedTasks
from engine.serving.admission.train import TrainLane
from engine.serving.crew.crew_service import CrewServicer
from engine.serving.crew.in_process import InProcessCrew
from engine.serving.crew.processes.local_workers import LocalWorkers
from engine.serving.crew.remote_crew import RemoteCrew
from engine.serving.crew.statistics import (
    WorkerStatistics,
    attempts_in_all,
    samplers_in_all,
    tools_in_all,
)
from engine.serving.crew.unfit_recipes import refuse_workers
from engine.serving.crew.workers import Workers, WorkersSetup, fence_of
from engine.serving.delivery.claims import Claims
from engine.serving.delivery.delivery import Delivery
from engine.serving.delivery.evaluated import EvaluationDelivery
from engine.serving.evaluation import EvaluationLane, check_tasks
from engine.serving.fork import fork_from
from engine.serving.ingress.agents import Agents
from engine.serving.ingress.ingress_service import IngressServicer
from engine.serving.ingress.keys import Keys
from engine.serving.journal.groups import StoredGroup
from engine.serving.journal.identity import policy_identity, tasks_identity
from engine.serving.journal.journal import Journal
from engine.serving.publish.broadcast_publish import BroadcastPublishes
from engine.serving.publish.publishing import Publisher
from engine.serving.seams import Seams, WorkersSeam
from engine.serving.service import PolicyServicer, RolloutServicer
from engine.serving.status import EngineStatus
from engine.serving.telemetry.event_feed import EventFeed
from engine.serving.telemetry.logs import bind_run, log_to
from engine.serving.telemetry.metrics import Metrics
from engine.serving.telemetry.page import metrics_page
from engine.serving.telemetry.progress import EngineProgress
from engine.serving.telemetry.traces import Traces, traces_of
from toolwright.ingress.v1 import ingress_pb2, ingress_pb2_grpc
from toolwright.model.beginning import first_policy, leave_fork
from toolwright.model.fingerprint import fingerprint
from toolwright.policy.v1 import policy_pb2, policy_pb2_grpc
from toolwright.process.metrics_page import port_fault
from toolwright.recipe import SUBMITTED, Recipe, refuse_open_ports
from toolwright.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from toolwright.rpc.auth import tokens_here
from toolwright.rpc.server import Server
from toolwright.types import Trajectory

PROGRESS_SECONDS = 5.0
FIRST_LOOKS_S = 60.0
"""Longest wait for the samplers' first answers about their caches. Without them only the staleness
bound limits what is in flight."""

log = structlog.get_logger("engine")

Sources = Mapping[str, TaskSource | SubmittedTasks]
"""The sources of the recipe's tasks, by the tasks' names."""


async def serve(
    recipe: Recipe, fork: Path | None = None, workers: int = 0, crew: WorkersSeam | None = None
) -> None:
    """`engine serve`: writes the resolved recipe and the log into the run's folder, and serves.

    workers: processes that roll out; 0 = this one does. crew: where they are; None = here.
    """
    refuse_open_ports(recipe)
    refuse_api(recipe, "`engine serve`")
    table = recipe.table("engine", EngineTable)
    log_to(recipe.make_run_folder() / "engine.jsonl")
    await Engine(recipe, table, fork=fork, workers=workers, seams=Seams(crew=crew)).run()


class Engine:
    """One engine process."""

    def __init__(
        self,
        recipe: Recipe,
        table: EngineTable,
        *,
        fork: Path | None = None,
        workers: int = 0,
        seams: Seams | None = None,
    ) -> None:
        """fork: folder of another run, whose newest weights this run begins with. workers:
        processes that roll out; 0 = this one does. Raises StartupError for a recipe that takes no
        workers."""
        if workers:
            refuse_workers(recipe, table)
        self._number_of_workers = workers
        self._workers: Workers | None = None
        self._recipe = recipe = recipe.counted()
        self._table = table
        self._fork = fork
        self._seams = seams or Seams()
        self._stop = asyncio.Event()
        self.metrics = Metrics()
        self._traces: Traces | None = None
        self._agents: Agents | None = None
        self._progress = EngineProgress(recipe.steps)
        self._drained = asyncio.Event()
        self._gate: CacheGate | None = None
        """Bounds what is in flight by the samplers' caches, if the recipe wants that."""

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT. Raises StartupError or ListenError before that."""
        self._on_signals()
        async with AsyncExitStack() as stack:
            start = asyncio.create_task(self._start(stack))
            stop = asyncio.create_task(self._stop.wait())
            try:
                await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                start.cancel()
                stop.cancel()
                await asyncio.gather(start, stop, return_exceptions=True)
            if start.cancelled():
                self._progress.show("engine: stopped before it served")
                return
            await self._work(start.result())

    def stop(self) -> None:
        """The action of SIGTERM: stops admissions. `run` returns once all trajectories in flight
        are done."""
        self._stop.set()

    async def drain(self, seconds: float) -> int:
        """Stops admissions while leases are still answered. Returns when nothing is in flight or
        after `seconds`, with the number of trajectories still in flight."""
        if not self.status.draining:
            self._feed.add("draining")
        self.status.draining = True
        self._lane.drain()
        if self._workers is not None:
            self._workers.drain()
        await self._evaluation.stop()
        if self._agents is not None:
            self._agents.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._drained.wait()
        return self._lane.running

    async def _start(self, stack: AsyncExitStack) -> Server:
        await self._assemble(stack)
        server = await self._listen(stack)
        try:
            await self._publisher.begin(self._model)
        except PublishFailed as error:
            raise StartupError(str(error)) from error
        listen = self._table.listen or self._recipe.shared.run.engine
        log.info("serving", listen=listen)
        self._feed.add("serving", version=str(self._publisher.version))
        self._progress.show(f"engine serves {self._recipe.shared.run.name} at {listen}")
        return server

    async def _listen(self, stack: AsyncExitStack) -> Server:
        """Serves the learner, which is refused until the samplers are in order."""
        server = Server(self._table.listen or self._recipe.shared.run.engine, tokens=tokens_here())
        server.add(_ROLLOUT, self._register_rollout)
        server.add(_POLICY, self._register_policy)
        if self._agents is not None:
            server.add(_INGRESS, self._register_ingress)
        await server.start()
        stack.push_async_callback(server.stop, 1.0)
        if self._table.metrics_port:
            await self._serve_metrics(stack)
        return server

    async def _assemble(self, stack: AsyncExitStack) -> None:
        recipe, shared = self._recipe, self._recipe.shared
        if self._fork is not None:
            version, weights = fork_from(self._fork, recipe.run_folder)
            leave_fork(recipe, run=self._fork, version=str(version), weights=weights)
        self._model = first_policy(recipe)
        core = self._core = EngineCore(
            recipe,
            self._table,
            stack,
            connect_sampler=self._seams.samplers,
            connect_tools=self._seams.tools,
        )
        check_tasks(self._table.evaluation.suites, core.tasks)
        sources = {name: await self._source(name, task) for name, task in core.tasks.items()}
        await self._open_journal(stack, sources)
        # Not earlier: a refused start must not rename the settings of the run.
        recipe.write_resolved("engine", self._table)
        if any(task.agent for task in shared.each_task.values()):
            keys = Keys(await self.journal.secret())
            self._agents = Agents(keys, self.journal.durable, self.journal.calls_of)
        self._pool = await self._open_neighbours()
        places = Places(self._table.fixed_places)
        if self._table.max_concurrent == "auto":
            self._gate = self._open_gate(places)
        if self._number_of_workers:
            self._workers = await self._open_workers(stack, self._number_of_workers)
        crews = {name: self._crew(name, task, places) for name, task in core.tasks.items()}
        sampling = build_sampling(recipe)
        self._evaluated = EvaluationDelivery(self.journal, keep=self._table.evaluation.keep)
        self._evaluation = EvaluationLane(
            table=self._table.evaluation,
            steps=recipe.steps,
            crews=crews,
            sampling=sampling,
            run_folder=recipe.run_folder,
            happened=self._feed.add,
            keep=self._evaluated.add,
        )
        stack.callback(self._evaluation.close)
        await self._evaluation.open(recipe.folder, max_bad_rows=self._table.max_bad_rows)
        stack.push_async_callback(self._evaluation.stop)
        self._lane = TrainLane(
            run=shared.run,
            steps=recipe.steps,
            crews=crews,
            places=places,
            sources=sources,
            mixture=Mixture(shared.allotment),
            journal=self.journal,
            sampling=sampling,
            bad_rows=BadRows(self._table.max_bad_rows),
            on_trajectory=self._finished,
            group_filter=(
                GroupFilter(
                    shared.task.dynamic_sampling, groups_per_step=shared.run.groups_per_step
                )
                if shared.task.dynamic_sampling is not None
                else None
            ),
            happened=self._feed.add,
        )
        # Sessions of trajectories that go on stay open; the others are closed.
        await core.tools.close_abandoned(await self._lane.resume())
        self._submissions = Submissions(self.journal, sources, happened=self._feed.add)
        if self._agents is not None:
            self._agents.expect(self._lane.earlier_outside)
        await self._open_learners_side(stack)

    async def _open_journal(self, stack: AsyncExitStack, sources: Sources) -> None:
        self.journal = Journal(
            self._recipe.run_folder / "journal.sqlite",
            history=self._table.history,
            drive=self._seams.journal,
        )
        stack.push_async_callback(self.journal.close)
        self._feed = EventFeed(self.journal.boot)
        await self._claim(sources)
        self._traces = traces_of(self.journal.owner, self._recipe.shared.run.traces)
        if self._traces is not None:
            stack.push_async_callback(asyncio.to_thread, self._traces.close)
            self.metrics.registry.register(self._traces.exporter)
        bind_run(self.journal.owner)

    async def _open_neighbours(self) -> SamplerPool:
        """Opens samplers, then tool services. A resumed run may start before its services are
        back."""
        core, shared = self._core, self._recipe.shared
        pool = await core.open_pool()
        if shared.run.share_gpu:
            refuse_kept_memory(pool)
        if shared.run.publish_adapters:
            refuse_without_adapters(pool)
        tools = await core.open_tools(self.journal.owner, wait_until_up=self.journal.boot > 1)
        for task in shared.each_task.values():
            listed = [tool for name in task.tools or shared.tools for tool in tools[name]]
            for doubt in branching_warnings(task.branching, listed):
                self._progress.show(f"warning: {doubt}")
        return pool

    def _open_gate(self, places: Places) -> CacheGate:
        run, tasks = self._recipe.shared.run, self._recipe.shared.each_task.values()
        longest = max(min(task.limits.model, task.limits.longest[1]) for task in tasks)
        # The staleness bound admits no more.
        limit = CacheLimit(most=(run.max_staleness + 1) * run.batch, longest=longest)
        return CacheGate(self._pool, limit, places, self._pool.look)

    async def _open_workers(self, stack: AsyncExitStack, number: int) -> Workers:
        """The service of the workers, which start with the work."""
        crew = self._seams.crew or LocalWorkers()
        workers = Workers(
            number,
            WorkersSetup(
                recipe=self._recipe.resolved("engine", self._table),
                owner=self.journal.owner,
                boot=self.journal.boot,
                run_folder=self._recipe.run_folder,
            ),
            make=crew.make,
            journal=self.journal,
            tools=self._core.tools,
            fleet=self._pool,
            happened=self._feed.add,
        )
        await crew.serve(CrewServicer(workers), stack)
        return workers

    def _crew(self, name: str, task: TaskCore, places: Places) -> InProcessCrew | RemoteCrew:
        own = task.recipe.shared
        if self._workers is not None:
            return RemoteCrew(
                task=name,
                rollout_context=self._core.rollout_context(name),
                workers=self._workers,
                places=places,
            )
        outside = None
        if own.task.agent is not None and self._agents is not None:
            outside = self._agents.of_task(own.task.agent)
        return InProcessCrew(
            rollout_context=self._core.rollout_context(name, outside),
            rewards=task.rewards,
            hook=build_group_hook(task.recipe),
            places=places,
            members_pool=self._gate,
            life=f"b{self.journal.boot}",
            fence=fence_of(self.journal.boot),
            patience=self._table.patience_s,
            keeper=self.journal.append,
            forget=self.journal.forget,
            stored=self.journal.blob,
            branching=own.task.branching,
            seed=own.run.seed,
            metadata=own.task.metadata,
            happened=self._feed.add,
        )

    async def _open_learners_side(self, stack: AsyncExitStack) -> None:
        """Publishing, delivery and status."""
        recipe, shared = self._recipe, self._recipe.shared
        control = WeightControl(
            self._pool,
            pause_mode=shared.sampler.pause,
            shares_gpu=shared.run.share_gpu,
            base=self._model if shared.run.publish_adapters else None,
        )
        self._claims = Claims(self.journal)
        self._publisher = Publisher(
            journal=self.journal,
            control=control,
            evaluation=self._evaluation,
            changed=self._lane.changed,
            allowed=self._claims.check,
            happened=self._feed.add,
        )
        stack.push_async_callback(self._publisher.stop)
        self._broadcasts = BroadcastPublishes(self._publisher, control, self._claims.check)
        self._delivery = Delivery(
            self.journal,
            self._lane,
            max_staleness=shared.run.max_staleness,
            delivered=self._delivered,
            happened=self._feed.add,
        )
        shape = await asyncio.to_thread(policy_identity, self._model)
        self._fingerprint = fingerprint(recipe, tokenizer=self._core.codec.hash, shape=shape)
        self.status = EngineStatus(
            run_folder=str(recipe.run_folder),
            steps=recipe.steps,
            lane=self._lane,
            evaluation=self._evaluation,
            publisher=self._publisher,
            delivery=self._delivery,
            samplers=lambda: samplers_in_all(self._pool.statistics(), self._worker_statistics),
            services=lambda: tools_in_all(self._core.tools.statistics(), self._worker_statistics),
            journal=self.journal,
            failures=lambda: attempts_in_all(self._core.failures, self._worker_statistics),
            metrics=self.metrics,
            progress=self._progress,
            submissions=self._submissions,
            agents=self._agents,
            gate=self._gate,
        )

    @property
    def _worker_statistics(self) -> list[WorkerStatistics]:
        return [] if self._workers is None else self._workers.statistics

    async def _source(self, name: str, task: TaskCore) -> TaskSource | SubmittedTasks:
        """The source of a task's training tasks. Raises StartupError if the first tasks yield no
        prompt."""
        if task.recipe.shared.task.source == SUBMITTED:
            return SubmittedTasks(lambda: self.journal, name)
        source = await open_source(task.recipe, max_bad_rows=self._table.max_bad_rows)
        for warning in source.warnings():
            whose = f" of tasks.{name}" if name else ""
            self._progress.show(f"warning: task source{whose}: {warning}")
        await first_that_fits(source, task.protocol, self._core.codec)
        return source

    async def _claim(self, sources: Sources) -> None:
        """Raises StartupError for a journal of another run."""
        shared = self._recipe.shared
        model = self._recipe.resolve(shared.policy.model)
        await self.journal.claim(
            {
                "run name": shared.run.name,
                "group size": str(shared.run.group_size),
                **tasks_identity(shared, {n: source.identity for n, source in sources.items()}),
                "tokenizer": self._core.codec.hash,
                "policy.foreign_text": shared.policy.foreign_text,
                "policy": await asyncio.to_thread(policy_identity, model),
                # Absent from journals of engines that knew whole weights alone.
                **({"published weights": "adapters"} if shared.run.publish_adapters else {}),
            }
        )

    async def _work(self, server: Server) -> None:
        gate = [] if self._gate is None else [self._gate.watch()]
        async with self._core.kept_alive(self._evaluation.watch(), *gate, *self._watch(server)):
            lane = asyncio.create_task(self._admit())
            stop = asyncio.create_task(self._stop.wait())
            try:
                await asyncio.wait({lane, stop}, return_when=asyncio.FIRST_COMPLETED)
                if lane.done():
                    lane.result()  # raises the lane's error, if it was not a drain
                    self._drained.set()
                    await stop
                await self.drain(0)
                await asyncio.wait({lane}, timeout=self._table.drain_s)
                if not lane.done():
                    # They go on in the next life, in their present sessions.
                    log.warning("unfinished_at_drain", trajectories=self._lane.running)
            finally:  # also if a background task failed: no trajectory outlives its services
                if not lane.done():  # trajectories in flight go on in a later life
                    self._core.tools.keep_sessions_open()
                    if self._agents is not None:
                        self._agents.stop()
                self._feed.close()
                for task in (lane, stop):
                    task.cancel()
                await asyncio.gather(lane, stop, return_exceptions=True)
                if self._workers is not None:
                    await self._workers.stop()
            if not lane.cancelled():
                lane.result()

    async def _admit(self) -> None:
        """Runs the train lane, once the workers are ready and the samplers have answered the first
        look at their caches."""
        if self._workers is not None:
            await self._workers.all_ready.wait()
        if self._gate is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LOOKS_S):
                    await self._gate.look()
                    while not (self._pool.loads_answered or self.status.draining):
                        await asyncio.sleep(LOOK_S)
                        await self._gate.look()
        await self._lane.run()

    def _watch(self, server: Server) -> list[Coroutine[Any, Any, None]]:
        """Coroutines that run beside the work, once the start is done."""
        gc_policy.settle()
        workers = [] if self._workers is None else [self._workers.run()]
        return [
            *workers,
            self.metrics.loop_lag.run(),
            self._report(server),
            gc_policy.collect(lambda: self._lane.running + self._evaluation.running),
        ]

    def _on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self.stop)

    async def _report(self, server: Server) -> None:
        healthy = True
        while True:
            self._progress.show(self.status.line())
            if healthy == (self.status.state == "full"):
                healthy = not healthy
                await server.set_serving(healthy)
            await asyncio.sleep(PROGRESS_SECONDS)

    def _finished(self, trajectory: Trajectory) -> None:
        self.metrics.count(trajectory)
        self._feed.add(
            "rewarded",
            trajectory=trajectory.id,
            task=trajectory.task.id,
            reward=trajectory.reward,
            masked=trajectory.masked,
        )
        if self._traces is not None:
            self._traces.finished(trajectory)

    def _delivered(self, group: StoredGroup) -> None:
        if self._traces is not None:
            self._traces.delivered(group)

    async def _serve_metrics(self, stack: AsyncExitStack) -> None:
        port = self._table.metrics_port
        try:
            await stack.enter_async_context(metrics_page(self.metrics.registry, port))
        except OSError as error:
            raise StartupError(port_fault("engine.metrics_port", port)) from error

    def _register_rollout(self, server: object) -> None:
        rollout_pb2_grpc.add_RolloutServiceServicer_to_server(self.rollout_servicer(), server)

    def _register_policy(self, server: object) -> None:
        policy_pb2_grpc.add_PolicyServiceServicer_to_server(self.policy_servicer(), server)

    def _register_ingress(self, server: object) -> None:
        ingress_pb2_grpc.add_IngressServiceServicer_to_server(self.ingress_servicer(), server)

    def rollout_servicer(self) -> RolloutServicer:
        """RolloutService of this engine, once it is assembled."""
        return RolloutServicer(
            self._delivery,
            self._evaluated,
            self.journal,
            self._claims,
            self._submissions,
            self._feed,
            self.status.message,
            self.drain,
        )

    def policy_servicer(self) -> PolicyServicer:
        """PolicyService of this engine, once it is assembled."""
        return PolicyServicer(
            self._publisher,
            self._broadcasts,
            self.journal,
            self._claims,
            self._fingerprint,
            shares_gpu=self._recipe.shared.run.share_gpu,
        )

    def ingress_servicer(self) -> IngressServicer:
        """IngressService of this engine, once it is assembled. Raises ValueError if no task has
        outside agents."""
        if self._agents is None:
            raise ValueError("no task of this engine has outside agents")
        codec = self._core.codec
        return IngressServicer(
            self._agents, codec, codec.vocab_size, codec.hash, lambda: self.status.over
        )


_ROLLOUT = rollout_pb2.DESCRIPTOR.services_by_name["RolloutService"].full_name
_INGRESS = ingress_pb2.DESCRIPTOR.services_by_name["IngressService"].full_name
_POLICY = policy_pb2.DESCRIPTOR.services_by_name["PolicyService"].full_name
