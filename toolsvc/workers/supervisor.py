"""Starts the workers, replaces those that die, and tells all of them who lives.

It holds no session and opens no gRPC channel, and it starts processes by exec, so it may start them
at any time. The public port, and that of health, are reserved here for as long as the service
lives; every worker listens there (SO_REUSEPORT) and on a port of its own, and while none lives the
supervisor says so there (`stand_in`). A Unix socket has one listener: worker 0 takes the public
one, and while it is being replaced nobody can be placed through it, though all other sessions go
on.

When the supervisor ends, by whatever signal, so do the workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from toolsvc.edge.metrics import merge, page_of_all
from toolsvc.errors import StartError, start_error_alone
from toolsvc.host.admission import PERMITS_PER_CORE
from toolsvc.host.task_blobs import BLOB_BYTES
from toolsvc.serving import DRAIN_SECONDS, ServiceConfig, announce, metrics_face, stop_event
from toolsvc.workers.addresses import address_of_health, addresses
from toolsvc.workers.messages import (
    LONGEST_LINE,
    TO_SUPERVISOR,
    AskMetrics,
    Assignment,
    Failed,
    Membership,
    Message,
    MetricsPage,
    Ready,
    ToSupervisor,
)
from toolsvc.workers.placement import Member, View, share
from toolsvc.workers.restarts import Restarts
from toolsvc.workers.stand_in import standing_in
from toolwright.rpc.options import is_unix

WORKER = (sys.executable, "-P", "-m", "toolsvc.workers.worker")
END_SECONDS = DRAIN_SECONDS + 20.0
"""For a worker to drain and to close its sessions; then it is killed."""
START_SECONDS = 600.0
"""For a worker to listen: a large index takes minutes. Then it is killed, for one that hangs would
keep its slot empty for ever."""
PAGE_SECONDS = 5.0

log = structlog.get_logger("toolsvc.supervisor")


async def supervise(
    config: ServiceConfig, workers: int, *, advertise: str, first_port: int
) -> None:
    """Serves until SIGTERM. StartError or ListenError before that; StartError also where, later, a
    worker cannot start and no other lives."""
    if config.verltool_http:
        raise StartError(
            "--verltool-http is for one process: leave --workers out, or start several services"
        )
    stop = stop_event(until_eof=config.until_eof)
    with (
        addresses(config.listen, workers, advertise, first_port) as (public, own),
        address_of_health(config.health),
    ):
        part = replace(
            config,
            listen=public,
            max_sessions=share(config.max_sessions, workers),
            blob_room=max(BLOB_BYTES, config.blob_room // workers),
            permits=max(1, PERMITS_PER_CORE * (os.cpu_count() or 1) // workers),
            sandbox=replace(
                config.sandbox,
                ready=math.ceil(config.sandbox.ready / workers),
                shards=math.ceil(config.sandbox.shards / workers),
            ),
        )
        supervisor = Supervisor(part, own, advertise)
        try:
            with start_error_alone():
                async with asyncio.TaskGroup() as group:
                    running = group.create_task(supervisor.run())
                    await stop.wait()
                    running.cancel()
        finally:
            await supervisor.end()


@dataclass(slots=True, kw_only=True, eq=False)
class _Worker:
    """A worker process that was ready once, as its supervisor has it."""

    slot: int
    link: str
    process: asyncio.subprocess.Process
    ready: Ready
    began: float = field(default_factory=time.monotonic)
    joined: int = 0
    page: asyncio.Future[str] | None = None

    @property
    def member(self) -> Member:
        return Member(
            slot=self.slot, joined=self.joined, endpoint=self.ready.endpoint, link=self.link
        )


class Supervisor:
    """`run` until cancelled, and `end` in any case."""

    def __init__(self, config: ServiceConfig, own: Sequence[str], advertise: str) -> None:
        """`config`: of one worker, with the public address; `own`: where each is to listen."""
        self._config = config
        self._own = own
        self._advertise = advertise
        self._links = f"unix-abstract:toolsvc-{os.getpid()}-{secrets.token_hex(8)}"
        self._generations = itertools.count()
        self._processes: set[asyncio.subprocess.Process] = set()
        self._living: dict[int, _Worker] = {}
        self._epoch = 0
        self._replaced = 0
        self._somebody, self._nobody = asyncio.Event(), asyncio.Event()
        """Set while a worker lives, and while none does."""

    async def run(self) -> None:
        """Starts all workers and keeps every slot filled. An ExceptionGroup with a StartError if
        one cannot start, at first; later, if one cannot and no other lives."""
        async with metrics_face(self._config, page_of_all(self.metrics)):
            await self._run()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            first = [group.create_task(self._start(slot)) for slot in range(len(self._own))]
        self._tell([task.result() for task in first])
        about = self._living[0].ready
        announce(about.tools, self._config.listen, about.isolation, f", {len(self._own)} workers")
        async with asyncio.TaskGroup() as group:
            for worker in self._living.values():
                group.create_task(self._keep(worker))
            if not is_unix(self._config.listen):
                group.create_task(self._stand_in())

    async def end(self) -> None:
        """Lets every worker drain, and kills what takes too long."""
        ending = [asyncio.create_task(process.wait()) for process in self._processes]
        for process in self._processes:
            _signal(process, signal.SIGTERM)
        if ending:
            await asyncio.wait(ending, timeout=END_SECONDS)
        for process in self._processes:
            _signal(process, signal.SIGKILL)
        await asyncio.gather(*ending)

    async def metrics(self) -> list[Metric]:
        """Of every worker that answers, and of the supervisor itself."""
        loop = asyncio.get_running_loop()
        asked = dict(self._living)
        for worker in asked.values():
            if worker.page is None or worker.page.done():
                worker.page = loop.create_future()
                _say(worker.process, AskMetrics())
        waits = [worker.page for worker in asked.values() if worker.page is not None]
        if waits:
            await asyncio.wait(waits, timeout=PAGE_SECONDS)
        pages = {
            str(slot): worker.page.result()
            for slot, worker in asked.items()
            if worker.page is not None and worker.page.done() and not worker.page.cancelled()
        }
        return [
            GaugeMetricFamily("toolsvc_workers", "living workers", len(self._living)),
            CounterMetricFamily("toolsvc_workers_replaced", "replaced workers", self._replaced),
            *merge(pages),
        ]

    async def _keep(self, worker: _Worker) -> None:
        """One slot: a worker, its death, the next one. StartError where that cannot start and no
        other worker lives."""
        restarts = Restarts()
        while True:
            code = await self._live(worker)
            log.error("worker lost", slot=worker.slot, pid=worker.process.pid, code=code)
            del self._living[worker.slot]
            self._tell([])
            worker = await self._replacement(worker, restarts)
            self._replaced += 1
            self._tell([worker])

    async def _replacement(self, dead: _Worker, restarts: Restarts) -> _Worker:
        lived = time.monotonic() - dead.began
        while True:
            await asyncio.sleep(restarts.pause(lived))
            try:
                return await self._start(dead.slot)
            except StartError as error:
                if not self._living:
                    raise
                log.error("worker not replaced", slot=dead.slot, reason=str(error))  # noqa: TRY400
                lived = 0.0

    async def _stand_in(self) -> None:
        """Answers in the workers' place while there is none; for ever. Not on a Unix socket: its
        path belongs to whoever made it last, which has to be worker 0."""
        while True:
            await self._nobody.wait()
            async with standing_in(self._config):
                await self._somebody.wait()

    async def _start(self, slot: int) -> _Worker:
        """A worker that listens. StartError with the sentence that it gave, or that it died or
        hangs."""
        try:
            process = await asyncio.create_subprocess_exec(
                *WORKER,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LONGEST_LINE,
                start_new_session=True,  # Ctrl-C is for the supervisor, which lets them drain.
            )
        except OSError as error:
            raise StartError(f"worker {slot} could not be started: {error}") from error
        self._processes.add(process)
        link = f"{self._links}-{next(self._generations)}"
        assignment = Assignment(
            config=self._config,
            slot=slot,
            listen=self._own[slot],
            # A Unix socket has one listener.
            public="" if slot > 0 and is_unix(self._config.listen) else self._config.listen,
            link=link,
            advertise=self._advertise,
        )
        _say(process, assignment)
        try:
            async with asyncio.timeout(START_SECONDS):
                answer = await _hear(process)
        except TimeoutError:
            _signal(process, signal.SIGKILL)
            await process.wait()
            self._processes.discard(process)
            raise StartError(
                f"worker {slot} did not start within {START_SECONDS:g} s; see its errors"
            ) from None
        if isinstance(answer, Ready):
            return _Worker(slot=slot, link=link, process=process, ready=answer)
        code = await process.wait()
        self._processes.discard(process)
        if isinstance(answer, Failed):
            raise StartError(answer.sentence)
        raise StartError(f"worker {slot} died at its start, with exit code {code}; see its errors")

    async def _live(self, worker: _Worker) -> int:
        """Hears the worker until its end; returns its exit code."""
        while (message := await _hear(worker.process)) is not None:
            if isinstance(message, MetricsPage) and worker.page and not worker.page.done():
                worker.page.set_result(message.text)
        if worker.page is not None:
            worker.page.cancel()
        code = await worker.process.wait()
        self._processes.discard(worker.process)
        return code

    def _tell(self, joining: Sequence[_Worker]) -> None:
        """A new view, for everybody."""
        self._epoch += 1
        for worker in joining:
            worker.joined = self._epoch
            self._living[worker.slot] = worker
        if self._living:
            self._nobody.clear()
            self._somebody.set()
        else:
            self._somebody.clear()
            self._nobody.set()
        members = tuple(self._living[slot].member for slot in sorted(self._living))
        message = Membership(view=View(epoch=self._epoch, members=members))
        for worker in self._living.values():
            _say(worker.process, message)


def _say(process: asyncio.subprocess.Process, message: Message) -> None:
    """Not awaited: a worker that does not listen must not keep the others from hearing. What waits
    for it is bounded by the few views there are in its life."""
    if process.stdin is not None and not process.stdin.is_closing():
        process.stdin.write(message.line())


async def _hear(process: asyncio.subprocess.Process) -> ToSupervisor | None:
    """The worker's next message; None at its end, which follows nonsense."""
    if process.stdout is None:
        return None
    try:
        line = await process.stdout.readline()
        return TO_SUPERVISOR.validate_json(line) if line else None
    except ValueError as error:
        log.error("worker killed", pid=process.pid, reason=f"it said {error}")  # noqa: TRY400
        _signal(process, signal.SIGKILL)
        return None


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
