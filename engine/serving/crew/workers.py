"""The workers of `engine serve --workers N`: their processes, their leases, their assignments.

Invariants
- An assignment is at one worker at a time. It goes to another one only after the process of the
  first has ended, or can send nothing more, with the events that are durable.
- No message of a lost worker is taken, so no attempt has two writers.
- A worker that does not beat for a lease is lost.
- A worker that ended is replaced. The engine ends if its workers do not even start.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog

from engine.core.sampler.fleet import Fleet
from engine.core.tools.output_log import OutputLog
from engine.core.tools.services import ToolServices
from engine.core.trajectory.events import Forked, Opened
from engine.errors import StartupError
from engine.serving.crew.earlier_logs import pieces_of
from engine.serving.crew.processes.worker_process import Process
from engine.serving.crew.report_intake import ReportIntake
from engine.serving.crew.sampler_state import SamplerAnnouncements
from engine.serving.crew.session_mirror import SessionMirror
from engine.serving.crew.statistics import WorkerStatistics
from engine.serving.crew.worker_link import Assigned, WorkerLink, WorkerLost
from engine.serving.journal.journal import FULL_PAUSE_S, Journal, JournalFull
from engine.serving.journal.logs import OpenLog
from engine.serving.telemetry.event_feed import Happened
from engine.types import SessionRef
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.process.backoff import Backoff

LEASE_S = 10.0
"""Time after each beat in which a worker may send requests."""
MARGIN_S = 2.0
SILENT_S = LEASE_S + MARGIN_S
"""Time after which a silent worker is lost. A publish waits as long for its confirmation."""
START_S = 300.0
"""Longest start of a worker."""
END_S = 45.0
"""Time in which a stopped worker reports its last events. Its tool sessions stay open."""
STEADY_S = 30.0
"""A worker that lived that long is replaced at once."""
BACKOFF = Backoff(0.5, 30.0, jitter=False)
"""Pauses before a worker that died early is replaced."""
MOST_FAILED_STARTS = 3
"""Failed starts of one worker in a row that end the engine, if no worker is ready."""

log = structlog.get_logger("workers")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersSetup:
    """What all workers of an engine get."""

    recipe: str
    """The resolved recipe; see `Setup`."""
    owner: str
    boot: int
    run_folder: Path


class Workers:
    """The workers of one engine. `run` them; `stop` them before the journal is closed."""

    def __init__(
        self,
        number: int,
        setup: WorkersSetup,
        *,
        make: Callable[[str, OutputLog], Process],
        journal: Journal,
        tools: ToolServices,
        fleet: Fleet,
        happened: Happened,
    ) -> None:
        """number: of workers. make: makes a worker's process without starting it, by the name
        of the worker's life and the file of its output."""
        self._number = number
        self._make = make
        self._setup = setup
        self._journal = journal
        self._tools = tools
        self._fleet = fleet
        self._mirror = SessionMirror(tools, self._session_lost)
        self._intake = ReportIntake(journal, self._mirror, happened)
        self._links: dict[str, WorkerLink] = {}
        self._past = WorkerStatistics()
        """Sums of the workers that have ended."""
        self._lives = itertools.count(1)
        self._assignments = itertools.count(1)
        self._one_ready = asyncio.Condition()
        self.all_ready = asyncio.Event()
        """Set once as many workers are ready as there are to be, as the first would get all work.
        Set also by `drain`: nothing is admitted any more."""
        self._samplers = SamplerAnnouncements(fleet, self._links, within=SILENT_S)
        self._draining = self._stopping = False

    @property
    def statistics(self) -> list[WorkerStatistics]:
        return [self._past, *(link.statistics for link in self._links.values())]

    def named(self, name: str) -> WorkerLink | None:
        """The living worker of that name."""
        link = self._links.get(name)
        return None if link is None or link.lost.done() else link

    @property
    def present(self) -> list[pb.WorkResponse]:
        """The state that all workers share, for a new stream."""
        found = [pb.WorkResponse(samplers=self._samplers.last)]
        if self._draining:
            found.append(pb.WorkResponse(drain=pb.Drain()))
        if self._stopping:
            found.append(pb.WorkResponse(stop=pb.Stop()))
        return found

    async def run(self) -> None:
        """Keeps the workers alive. Runs until cancelled, or after `stop`. Raises StartupError, in a
        group, if workers do not start."""
        async with asyncio.TaskGroup() as group:
            for slot in range(self._number):
                group.create_task(self._keep(slot))

    async def stop(self) -> None:
        """Ends the workers. What is in flight goes on in a later life of the engine."""
        self._stopping = True
        for link in self._links.values():
            link.send(pb.WorkResponse(stop=pb.Stop()))
            if not link.ready.is_set():
                link.lose("the engine stopped during its start")
        losses = [link.lost for link in self._links.values()]
        if losses:
            await asyncio.wait(losses, timeout=END_S)
        for link in self._links.values():
            link.lose("it did not end in time")

    def drain(self) -> None:
        """Groups that infrastructure failed are not rolled out again."""
        self._draining = True
        self.all_ready.set()
        for link in self._links.values():
            link.send(pb.WorkResponse(drain=pb.Drain()))

    async def assign(
        self,
        message: pb.Assignment,
        logs: Mapping[str, OpenLog],
        **about: Any,
    ) -> tuple[WorkerLink, Assigned]:
        """Gives an assignment to the worker with the fewest trajectories; waits for one. logs: of
        attempts that go on. about: further fields of `Assigned`."""
        async with self._one_ready:
            await self._one_ready.wait_for(lambda: bool(self._ready))
            link = min(self._ready, key=lambda one: one.members_assigned)
        message.id = next(self._assignments)
        message.fence = fence_of(self._setup.boot, message.id)
        kept = sessions_of(logs)
        self._mirror.keep(kept)
        assigned = Assigned(
            message=message,
            outcome=asyncio.get_running_loop().create_future(),
            send=link.send,
            kept=kept,
            earlier=list(pieces_of(message.id, logs)),
            **about,
        )
        link.assignments[message.id] = assigned
        for part in assigned.messages:
            link.send(part)
        if assigned.grants is not None:
            assigned.grants.begin(lambda: link.send(assigned.places_message))
        return link, assigned

    def over(self, assigned: Assigned) -> None:
        """Closes the tool sessions that the worker was to adopt and did not."""
        self._mirror.release(assigned.kept)

    def cut(self, link: WorkerLink, assigned: Assigned) -> None:
        """Ends an assignment, with its tool sessions."""
        if link.assignments.pop(assigned.number, None) is not None:
            link.cut(assigned.number)

    async def open_logs(self, trajectories: Collection[str]) -> dict[str, OpenLog]:
        """Logs of attempts that go on, by trajectory. A full disk delays it."""
        while True:
            try:
                return await self._journal.open_logs(set(trajectories))
            except JournalFull:
                await asyncio.sleep(FULL_PAUSE_S)

    def take(self, link: WorkerLink, message: pb.WorkRequest) -> None:
        """Handles a worker's message. The worker is lost if that fails: a report may be half taken,
        and no other message of its stream would be read."""
        if link.lost.done():
            return
        try:
            self._take(link, message)
        except Exception as error:
            log.exception("message_refused", worker=link.name)
            link.lose(f"its message could not be taken: {error!r}")

    def _take(self, link: WorkerLink, message: pb.WorkRequest) -> None:
        match message.WhichOneof("message"):
            case "report":
                self._intake.take(link, message.report)
            case "beat":
                self._take_beat(link, message.beat)
            case "samplers_seen":
                link.seen(message.samplers_seen.number)
            case "sampler_fault":
                self._samplers.take_fault(message.sampler_fault)
            case "ready":
                link.grant(LEASE_S)
                link.ready.set()

    async def blob(self, sha256: str) -> bytes | None:
        """Bytes of an assigned task's media, or of an image in the journal."""
        for link in self._links.values():
            for one in link.assignments.values():
                for media in one.media:
                    if media.blob.sha256 == sha256:
                        return media.data
        return await self._journal.blob(sha256)

    # ---- leases ----

    def _take_beat(self, link: WorkerLink, beat: pb.Beat) -> None:
        link.heard.set()
        if beat.statistics:
            link.statistics = msgspec.json.decode(beat.statistics, type=WorkerStatistics)
        link.grant(LEASE_S)
        link.send(
            pb.WorkResponse(
                lease=pb.Lease(beat=beat.number, seconds=LEASE_S, others=self._loads_beside(link))
            )
        )

    def _loads_beside(self, link: WorkerLink) -> dict[str, pb.Load]:
        """What the other workers have on each sampler."""
        found: dict[str, pb.Load] = {}
        for other in self._links.values():
            if other is link:
                continue
            for name, one in other.statistics.samplers.items():
                load = found.setdefault(name, pb.Load())
                load.in_flight += one["in_flight"]
                load.queued += one["queued"]
        return found

    def _session_lost(self, worker: str, service: str, session_id: str) -> None:
        if (link := self.named(worker)) is not None:
            lost = pb.LostSession(service=service, session_id=session_id)
            link.send(pb.WorkResponse(lost_session=lost))

    # ---- life and death ----

    @property
    def _ready(self) -> Sequence[WorkerLink]:
        return [link for link in self._links.values() if link.takes_work]

    async def _keep(self, slot: int) -> None:
        """Keeps one worker alive until the end."""
        output = OutputLog(self._setup.run_folder / f"worker.{slot}.log")
        failures = failed_starts = 0
        while not self._stopping:
            began = asyncio.get_running_loop().time()
            was_ready = await self._live(output)
            lived = asyncio.get_running_loop().time() - began
            failed_starts = 0 if was_ready else failed_starts + 1
            if failed_starts >= MOST_FAILED_STARTS and not self._ready:
                raise StartupError(f"worker {slot} does not start: {output.last_words()}")
            failures = 0 if lived > STEADY_S else failures + 1
            if failures and not self._stopping:
                await asyncio.sleep(BACKOFF.pause(failures - 1))

    async def _live(self, output: OutputLog) -> bool:
        """One life of a worker. Returns whether it was ready."""
        name = f"w{next(self._lives)}"
        session_life = secrets.token_hex(3)
        link = WorkerLink(
            name,
            output.path,
            pb.Setup(
                recipe=self._setup.recipe,
                owner=self._setup.owner,
                session_life=session_life,
                attempt_life=f"b{self._setup.boot}{name}",
                tool_addresses=self._tools.process_addresses,
                request_life=secrets.token_hex(8),
            ),
        )
        process = self._make(name, output)
        self._links[name] = link
        self._tools.leases.worker_lives.add(session_life)
        try:
            await process.start()
            link.pid = process.pid
            log.info("worker_started", worker=name, pid=link.pid)
            async with asyncio.TaskGroup() as around:
                tasks = [
                    around.create_task(self._watch(link)),
                    around.create_task(self._intake.confirm(link)),
                    around.create_task(self._lose_at_end(link, process)),
                    around.create_task(self._count_ready(link)),
                ]
                why = await link.lost
                for task in tasks:
                    task.cancel()
        finally:
            link.lose("the engine ends")
            link.end_stream()
            seen = await process.kill()
            del self._links[name]
            self._past = self._past.plus(link.statistics.ended())
        if not self._stopping:
            log.warning("worker_lost", worker=name, why=why, end_seen=seen)
            if not seen and link.ready.is_set():
                await asyncio.sleep(link.lease_left + MARGIN_S)
            await self._bury(link)
        self._tools.leases.worker_lives.discard(session_life)
        return link.ready.is_set()

    async def _count_ready(self, link: WorkerLink) -> None:
        await link.ready.wait()
        log.info("worker_ready", worker=link.name)
        if len(self._ready) == self._number:
            self.all_ready.set()
        async with self._one_ready:
            self._one_ready.notify_all()

    async def _lose_at_end(self, link: WorkerLink, process: Process) -> None:
        link.lose(await process.ended())

    async def _watch(self, link: WorkerLink) -> None:
        """Loses a worker that is silent beyond its lease."""
        try:
            async with asyncio.timeout(START_S):
                await link.ready.wait()
        except TimeoutError:
            link.lose(f"it is not ready after {START_S:g} s")
        with suppress(TimeoutError):
            while True:
                link.heard.clear()
                async with asyncio.timeout(SILENT_S):
                    await link.heard.wait()
        link.lose(f"it is silent for {SILENT_S:g} s")

    async def _bury(self, link: WorkerLink) -> None:
        """Hands the work of a dead worker on, with its durable events and their sessions."""
        trajectories = {name for one in link.assignments.values() for name in one.trajectories}
        logs = await self.open_logs(trajectories) if trajectories else {}
        await self._fleet.abort(link.setup.request_life)
        kept = {(ref.service, ref.session_id) for ref in sessions_of(logs)}
        self._mirror.bury(link.name, kept)
        for one in link.assignments.values():
            self._mirror.release(r for r in one.kept if (r.service, r.session_id) not in kept)
            if not one.outcome.done():
                own = {name: logs[name] for name in one.trajectories if name in logs}
                one.outcome.set_exception(WorkerLost(own))
        log.info(
            "work_handed_on",
            worker=link.name,
            assignments=len(link.assignments),
            trajectories=len(trajectories),
            in_flight=sum(bool(sessions_of({name: one})) for name, one in logs.items()),
        )
        link.assignments.clear()


def fence_of(boot: int, assignment: int = 0) -> int:
    """The fence of an assignment: above those of all earlier ones, in all lives of the engine.
    boot: number of this life. assignment: its number; 0 = the engine rolls out itself."""
    return (boot << 32) + assignment


def sessions_of(logs: Mapping[str, OpenLog]) -> tuple[SessionRef, ...]:
    """Tool sessions of the attempts that have not ended."""
    found: list[SessionRef] = []
    for one in logs.values():
        if not one.ended:
            for event in one.events:
                if isinstance(event, Opened | Forked):
                    found += event.sessions
    return tuple(found)
