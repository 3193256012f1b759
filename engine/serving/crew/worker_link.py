"""One life of a worker, as the coordinator sees it: its assignments, its stream, what it reported.

Invariants
- Each report is taken once, in the order of its numbers, and none after the worker is lost.
- A new stream begins with all state: samplers, drain, stop and assignments.
- `Cut` is sent on each new stream again, until the worker has reported the end.
- `LostSession` is sent once. Without a stream it is lost; the session's next call finds out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from engine.core.images.media import Media
from engine.errors import EngineError
from engine.serving.crew.place_grants import PlaceGrants
from engine.serving.crew.statistics import WorkerStatistics
from engine.serving.journal.logs import OpenLog
from engine.types import SessionRef
from toolwright.common.v1 import trajectory_pb2
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.types import Trajectory
from toolwright.wire import trajectory_from_proto


class WorkerLost(Exception):
    """The worker of an assignment is dead. logs: what it made durable, by trajectory."""

    def __init__(self, logs: Mapping[str, OpenLog]) -> None:
        super().__init__("the worker is lost")
        self.logs = logs


class WorkerDefect(EngineError):
    """A worker reports an error that no rollout may cause."""


@dataclass(frozen=True, kw_only=True)
class RemoteMember:
    """A trajectory that a worker rolled out and scored."""

    attempt: str
    serialized: bytes
    why: str = ""
    """Why a row of an evaluation does not count."""

    @cached_property
    def trajectory(self) -> Trajectory:
        message = trajectory_pb2.Trajectory.FromString(self.serialized)
        return trajectory_from_proto(message)


@dataclass(eq=False, kw_only=True)
class Assigned:
    """An assignment at a worker. `outcome` raises WorkerLost, TaskUnfit or WorkerDefect."""

    message: pb.Assignment
    outcome: asyncio.Future[list[RemoteMember]]
    send: Callable[[pb.WorkResponse], None]
    earlier: Sequence[pb.EarlierLog] = ()
    """Pieces of the logs of attempts that go on."""
    trajectories: Sequence[str] = ()
    """Ids of a group's trajectories, whose logs are in the journal."""
    media: Sequence[Media] = ()
    grants: PlaceGrants | None = None
    """Places of a group; None = a row of an evaluation, which takes none."""
    queued: Callable[[], None] = lambda: None
    sampled: Callable[[], None] = lambda: None
    kept: Sequence[SessionRef] = ()
    """Tool sessions that the worker is to adopt."""
    members: list[RemoteMember] = field(default_factory=list)

    @property
    def number(self) -> int:
        return self.message.id

    @property
    def messages(self) -> Iterable[pb.WorkResponse]:
        """Messages that give the assignment to the worker, in order."""
        for piece in self.earlier:
            yield pb.WorkResponse(earlier=piece)
        yield pb.WorkResponse(assignment=self.message)

    @property
    def places_message(self) -> pb.WorkResponse:
        granted = self.grants.granted if self.grants is not None else 0
        return pb.WorkResponse(places=pb.Places(assignment=self.number, granted=granted))


class WorkerLink:
    """The coordinator's side of one life of a worker."""

    def __init__(self, name: str, output: Path, setup: pb.Setup) -> None:
        """name: of this life. output: file of the worker's log."""
        self.name = name
        self.output = output
        self.setup = setup
        self.pid = 0
        self.ready = asyncio.Event()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why the worker is lost, once it is."""
        self.assignments: dict[int, Assigned] = {}
        self._cut: dict[int, None] = {}
        """Assignments that were cut, and whose end the worker has not reported."""
        self.heard = asyncio.Event()
        """Set by each beat."""
        self._lease_ends = 0.0
        self.received = 0
        """Number of the last report."""
        self.durable = 0
        self.statistics = WorkerStatistics()
        self.news = asyncio.Event()
        """Set when reports wait to be durable."""
        self._seen = 0
        self._seen_more = asyncio.Event()
        self._outbox: asyncio.Queue[pb.WorkResponse | None] | None = None

    @property
    def takes_work(self) -> bool:
        return self.ready.is_set() and not self.lost.done()

    def grant(self, seconds: float) -> None:
        """The worker may send requests for so long, or shorter: it counts from an earlier time."""
        self._lease_ends = asyncio.get_running_loop().time() + seconds

    @property
    def lease_left(self) -> float:
        """Seconds until the worker sends no more requests, if it lives; negative after that."""
        return self._lease_ends - asyncio.get_running_loop().time()

    @property
    def members_assigned(self) -> int:
        """Trajectories that the worker has."""
        return sum(max(1, len(one.trajectories)) for one in self.assignments.values())

    def attach(self, present: Sequence[pb.WorkResponse]) -> asyncio.Queue[pb.WorkResponse | None]:
        """The messages of a new stream; None ends it. An older stream ends. present: the state that
        all workers share."""
        if self._outbox is not None:
            self._outbox.put_nowait(None)
        self._outbox = asyncio.Queue()
        self.send(pb.WorkResponse(setup=self.setup))
        for message in present:
            self.send(message)
        for number in self._cut:
            self.send(_cut_of(number))
        for one in self.assignments.values():
            for message in one.messages:
                self.send(message)
            self.send(one.places_message)
        self.send(pb.WorkResponse(durable=pb.Durable(sequence=self.durable)))
        return self._outbox

    def detach(self, outbox: asyncio.Queue[pb.WorkResponse | None]) -> None:
        """The stream of these messages is over."""
        if self._outbox is outbox:
            self._outbox = None

    def end_stream(self) -> None:
        if self._outbox is not None:
            self._outbox.put_nowait(None)

    def send(self, message: pb.WorkResponse) -> None:
        """Sends a message, now or with the state at the begin of the next stream."""
        if self._outbox is not None:
            self._outbox.put_nowait(message)

    def cut(self, number: int) -> None:
        """Ends an assignment at the worker."""
        self._cut[number] = None
        self.send(_cut_of(number))

    def ended(self, number: int) -> Assigned | None:
        """The worker reports the end of an assignment; None if that one was cut before."""
        self._cut.pop(number, None)
        return self.assignments.pop(number, None)

    def lose(self, why: str) -> None:
        """From now on nothing that the worker reports counts."""
        if not self.lost.done():
            self.lost.set_result(why)

    def seen(self, number: int) -> None:
        """The worker knows the samplers' state of that number."""
        self._seen = max(self._seen, number)
        self._seen_more.set()

    async def until_seen(self, number: int) -> None:
        """Returns when the worker knows a state of the samplers, or is lost."""
        while self._seen < number and not self.lost.done():
            self._seen_more.clear()
            await self._seen_more.wait()

    def confirm(self, sequence: int) -> None:
        """Reports up to a number are durable."""
        self.durable = sequence
        self.send(pb.WorkResponse(durable=pb.Durable(sequence=sequence)))


def _cut_of(number: int) -> pb.WorkResponse:
    return pb.WorkResponse(cut=pb.Cut(assignment=number))
