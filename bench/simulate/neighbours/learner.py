"""The learner's part of the contract without weights: leases, steps, publishes, acknowledges.

It follows `learner/loop`: the newest claim has the run; a checkpoint comes before the
acknowledgement. Ledger, and the rule for the version with which a life begins, are the learner's
own code.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from google.protobuf.duration_pb2 import Duration

from bench.history.events import (
    Acknowledged,
    AnyEvent,
    Claimed,
    LearnerRefused,
    Member,
    Offered,
    Published,
    Publishing,
    Restored,
    SupersededRequest,
    Trained,
)
from bench.history.members import member_of
from bench.simulate.neighbours.engine_calls import EngineCalls, LeasedGroup
from bench.simulate.playing.engine_life import EngineLife
from bench.simulate.schedule import Workload
from bench.simulate.virtual.loop import Owner, loop_here
from bench.simulate.workload import text_of
from learner.intake.first_version import first_version
from learner.intake.ledger import Ledger, Verdict
from toolwright import wire
from toolwright.policy.v1 import policy_pb2 as policy
from toolwright.rollout.v1 import rollout_pb2 as rollout
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.types import Author, Trajectory, WeightVersion
from toolwright.types import Segment as SegmentOfRecord

WAIT = Duration(seconds=5)
AGAIN_S = 0.5
"""Between two tries of a request that failed."""
REPEATS = 0.15
"""Share of publishes that are sent again after success, and of acknowledgements that come late."""
RETURNS = 0.3
"""Share of restarts at which a request of the life before arrives late."""
RESTART_S = 2.0
"""Until a learner that ended by itself is started again."""


class _LifeEnded(Exception):
    """A fault ends this life of the learner."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    version: WeightVersion
    ledger: Ledger


class Learner:
    """All lives of the run's learner."""

    def __init__(
        self,
        workload: Workload,
        weights: Path,
        random: Random,
        engine: Callable[[], EngineLife | None],
        see: Callable[[AnyEvent], None],
    ) -> None:
        self._workload = workload
        self._weights = weights
        self._random = random
        self._engine = EngineCalls(engine)
        self._see = see
        self.see_record: Callable[[Trajectory], None] = lambda _record: None
        """Sees each record that was leased."""
        self._checkpoint: Checkpoint | None = None
        self._owner: Owner | None = None
        self._word = ""
        self._lives = 0
        self._version = WeightVersion(lineage="none", step=0)
        self._ledger = Ledger()
        self._acknowledged: rollout.AckGroupsRequest | None = None
        """The latest acknowledgement of this life."""
        self.leases = asyncio.Event()
        """Clear while the learner stalls."""
        self.leases.set()
        self._ends_left = 0
        """Publishes after which it ends once more."""
        self.stable = asyncio.Event()
        """Clear while it ends after publishes."""
        self.complete = asyncio.Event()
        """All steps are trained, and the last checkpoint is acknowledged."""
        self.crashes: list[str] = []
        """Errors that no learner knows."""
        self.ended_by: list[str] = []
        """Errors that ended a life."""

    def start(self) -> None:
        """Another process, where none lives."""
        if self._owner is not None:
            return
        self._lives += 1
        self._word = f"learner {self._lives}"
        self._acknowledged = None
        self._owner = Owner(loop_here(), self._word)
        self._owner.spawn(self._live()).add_done_callback(self._task_done)

    def end_after_publishes(self, times: int) -> None:
        """From now on it ends after each of `times` publishes."""
        self._ends_left = times
        self.stable.clear()

    def _task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.crashes.append(f"the learner ended: {error!r}")

    async def kill(self) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.die()
            await owner.buried()

    async def _live(self) -> None:
        while True:
            try:
                await self._train()
            except (ServiceError, _LifeEnded) as error:
                self.ended_by.append(str(error) or "a fault")
                await asyncio.sleep(self._random.uniform(0.0, RESTART_S))
                self._lives += 1
                self._word = f"learner {self._lives}"
                self._acknowledged = None
            else:
                self.complete.set()
                return

    async def _train(self) -> None:
        await self._begin()
        while self._version.step < self._workload.steps:
            groups = await self._leased()
            await asyncio.sleep(self._workload.train_s * self._random.uniform(0.5, 1.5))
            self._consume(groups)
            await self._publish(None)
            last = self._version.step == self._workload.steps
            if last or self._version.step % self._workload.checkpoint_every == 0:
                await asyncio.sleep(self._random.uniform(0.0, 0.3))
                self._checkpoint = Checkpoint(self._version, self._ledger.copy())
                await self._acknowledge()

    async def _begin(self) -> None:
        found = await self._policy(policy.GetPolicyRequest(learner=self._word), "GetPolicy")
        newest, saved = wire.version_from_proto(found.version), self._checkpoint
        self._see(Claimed(at=loop_here().time(), learner=self._word, version=newest))
        if self._lives > 1 and self._random.random() < RETURNS:
            await self._return()
        first = first_version(
            saved.version if saved else None, newest, lambda: self._random.randbytes(4).hex()
        )
        self._ledger = saved.ledger.copy() if saved else Ledger()
        if self._lives > 1:
            begun = first.parent or first.version
            self._see(Restored(at=loop_here().time(), lineage=begun.lineage, step=begun.step))
        self._version = first.version
        if first.parent is not None:
            await self._publish(first.parent)
        if saved is not None:
            await self._acknowledge()

    async def _return(self) -> None:
        """A request of the life before, after this one has claimed the run."""
        before = f"learner {self._lives - 1}"
        request = rollout.AckGroupsRequest(consumer=rollout.CONSUMER_TRAIN, learner=before)
        try:
            await self._engine.once(0, "AckGroups", request)
        except TransportError:
            return
        except ServiceError as error:
            if error.reason_name != "SUPERSEDED":
                return
            accepted = False
        else:
            accepted = True
        self._see(SupersededRequest(at=loop_here().time(), accepted=accepted))

    async def _leased(self) -> list[Offered]:
        """The groups of one step. The ledger has not recorded any of them yet."""
        groups: list[Offered] = []
        mark, wanted = self._ledger.mark, self._workload.groups_per_step
        while len(groups) < wanted:
            await self.leases.wait()
            request = rollout.LeaseGroupsRequest(
                consumer=rollout.CONSUMER_TRAIN,
                after_sequence=mark,
                max_groups=wanted - len(groups),
                version=wire.version_to_proto(self._version),
                wait=WAIT,
                learner=self._word,
            )
            try:
                async for leased in self._engine.leased(request):
                    group = self._offered(leased)
                    self._see(group)
                    mark = group.sequence
                    if self._ledger.judge(group.group, group.hash) is Verdict.NEW:
                        groups.append(group)
            except TransportError:
                await asyncio.sleep(AGAIN_S)
            again = len(groups) < wanted and self._workload.repeats_acknowledgements
            if again and self._acknowledged:
                await self._ask(0, "AckGroups", self._acknowledged)  # its answer was lost
        return groups

    def _offered(self, leased: LeasedGroup) -> Offered:
        group, members, digest = leased
        records = list(map(wire.trajectory_from_proto, members))
        for record in records:
            self.see_record(record)
        return Offered(
            at=loop_here().time(),
            sequence=group.sequence_number,
            group=group.id,
            hash=group.content_hash,
            bytes_hash=digest,
            version=self._version,
            members=tuple(map(simulated_member, records)),
        )

    def _consume(self, groups: list[Offered]) -> None:
        for group in groups:
            self._ledger.consume(
                sequence_number=group.sequence,
                group=group.group,
                content_hash=group.hash,
                version=self._version,
            )
        self._version = replace(self._version, step=self._version.step + 1)
        self._see(
            Trained(
                at=loop_here().time(),
                lineage=self._version.lineage,
                step=self._version.step,
                sequences=tuple(group.sequence for group in groups),
            )
        )

    async def _publish(self, parent: WeightVersion | None) -> None:
        request = policy.PublishWeightsRequest(
            version=wire.version_to_proto(self._version),
            path=str(self._weights),
            learner=self._word,
        )
        if parent is not None:
            request.parent.CopyFrom(wire.version_to_proto(parent))
        now = loop_here().time()
        self._see(Publishing(at=now, version=self._version, parent=parent, learner=self._word))
        await self._policy(request, "PublishWeights")
        self._see(Published(at=loop_here().time(), version=self._version))
        if self._random.random() < REPEATS:  # its answer was lost
            await self._policy(request, "PublishWeights")
            self._see(Published(at=loop_here().time(), version=self._version))
        if self._ends_left:
            self._ends_left -= 1
            if not self._ends_left:
                self.stable.set()
            raise _LifeEnded

    async def _acknowledge(self) -> None:
        request = rollout.AckGroupsRequest(
            consumer=rollout.CONSUMER_TRAIN,
            durable_sequence=self._ledger.mark,
            learner=self._word,
        )
        answer = await self._ask(0, "AckGroups", request)
        self._ledger.settle(answer.durable_sequence)
        self._see(Acknowledged(at=loop_here().time(), mark=answer.durable_sequence))
        if self._acknowledged and self._random.random() < REPEATS:  # an earlier one arrives late
            late = await self._ask(0, "AckGroups", self._acknowledged)
            self._see(Acknowledged(at=loop_here().time(), mark=late.durable_sequence))
        self._acknowledged = request

    async def _policy(self, request: Any, method: str) -> Any:
        return await self._ask(1, method, request)

    async def _ask(self, which: int, method: str, request: Any) -> Any:
        """Again and again until the engine answers. ServiceError for what does not pass."""
        while True:
            try:
                return await self._engine.once(which, method, request)
            except TransportError:
                await asyncio.sleep(AGAIN_S)
            except ServiceError as error:
                self._see(
                    LearnerRefused(
                        at=loop_here().time(),
                        method=method,
                        reason=error.reason_name,
                        version=self._version if method == "PublishWeights" else None,
                    )
                )
                if not error.passes and error.reason_name != "PUBLISH_FAILED":
                    raise
                await asyncio.sleep(error.retry_after or RESTART_S)


def simulated_member(record: Trajectory) -> Member:
    """A trajectory as a history has it, with the texts of its turns."""
    segments = [one for sequence in record.sequences for one in sequence.segments]
    return msgspec.structs.replace(member_of(record), turns=tuple(_texts(segments)))


def _texts(segments: list[SegmentOfRecord]) -> Iterator[str]:
    """What the policy wrote, turn by turn."""
    written = [one for one in segments if one.author is Author.MODEL]
    for _turn, parts in itertools.groupby(written, key=lambda one: one.turn):
        yield "".join(text_of(one.token_ids) for one in parts)
