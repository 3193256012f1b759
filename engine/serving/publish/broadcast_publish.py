"""Publishes over a distributed group: the learner broadcasts, samplers receive, without a folder.

One publish, from the learner's side
- Its store (torch's TCPStore) listens before BeginPublish. The engine connects to it once before it
  contacts any server. So a wrong address is refused and blocks no server.
- BeginPublish checks what PublishWeights checks, except the folder, and waits for evaluation. It
  answers `publish_id` and `world_size` = 1 + the ranks of the servers that are up. All these
  servers join at once: SGLang answers when the group is whole, and samples nothing until then. So
  the learner must make its side of the group at once, as rank 0. `publish_id` is the group's name
  and the prefix of its keys in the store.
- PublishBucket(0) may and should be sent before the learner's side of the group stands: it fails at
  once if a server does not join. Once all have joined it pauses the servers. Every server gets each
  bucket at once, and the call answers when each has it. The learner broadcasts the tensors from
  rank 0, one by one, in the order of the list, while the RPC is in progress. SGLang does not notice
  a tensor of another size: the learner must keep list and broadcast equal.
- After a failure, or before AbortPublish, the learner closes its side of the group at once and its
  store a few seconds later. The first frees servers that receive, the second those that still join.
  A server that looks for a store that is closed already looks for half an hour.
- CommitPublish needs every tensor of the served policy; tied heads may be left out. It answers when
  the servers go on with the version. Then the learner may close its group: the servers have left
  it.
- PublishWeights of the same version names the folder, whenever it is written. It moves no sampler,
  waits for no other publish, and may come after a later version was committed.

Refused, and an open publish stays unchanged (INVALID_ARGUMENT, not to be retried)
- A bucket out of order, without tensors, or beside one that is in progress.
- A tensor that the served policy does not have, of another shape or type, or that came before.
- A commit with missing tensors; a new lineage, which begins with a folder.

Failed, and the publish ends (PUBLISH_FAILED: begin again with a new store, or by a folder)
- A store that the engine cannot reach; a server that does not join, dies or refuses; a lease that
  ends; no server that is up, if the newest version has no folder or no server comes back in time.
- A publish that is not open, by its id: it failed before, or in an earlier life of the engine.
- A server that failed is set aside. A server that got a bucket holds mixed weights: it is set aside
  too, its requests go elsewhere, and it gets the newest folder. Others go on as before.
- The previous version stays. While it has no folder, servers that are set aside wait for the
  folder.

Invariants
- One publish at a time is open, and none beside one by folder. A learner that publishes a newer
  version, or begins again, ends the open one. So does a learner that takes the run over.
- A caller that goes away leaves a publish to its lease; the same request again joins it.
- The journal names no version of a group before its folder was checked as whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import structlog

from engine.core.sampler.control import PublishResult, WeightControl
from engine.core.sampler.update_group import Rendezvous, TensorSpec, update_group
from engine.errors import PublishFailed
from engine.serving.publish.broadcast import Broadcast, BroadcastSpec, refused
from engine.serving.publish.policy_shape import PolicyShape
from engine.serving.publish.publishing import Publisher
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError, internal
from toolwright.types import WeightVersion

BACKENDS = ("gloo", "nccl")
STORE_SECONDS = 5.0
"""Timeout of a connection to the learner's store."""
_FIX = "begin again with a new store, or publish a folder"

log = structlog.get_logger("publish")


class BroadcastPublishes:
    """The open publish over a group, and the end of the last one."""

    def __init__(
        self, publisher: Publisher, control: WeightControl, allowed: Callable[[str], None]
    ) -> None:
        """allowed: raises ServiceError for a learner that does not have the run."""
        self._publisher = publisher
        self._control = control
        self._allowed = allowed
        self._open: Broadcast | None = None
        self._last: Broadcast | None = None
        self._task: asyncio.Task[None] | None = None

    async def begin(self, spec: BroadcastSpec) -> tuple[str, int]:
        """Begins or joins a publish. Returns its id and the world size of its group; the servers
        are joining."""
        self._allowed(spec.learner)
        _check_spec(spec)
        # The same request again joins the publish, unless it has failed and is only being cleaned
        # up.
        while (held := self._open) is not None and (held.spec != spec or held.why is not None):
            await self.end(_failed(held.spec.version, "its learner began another publish"))
        one = self._open
        if one is None:
            one = self._open = Broadcast(spec)
            self._task = asyncio.get_running_loop().create_task(self._live(one))
            self._task.add_done_callback(self._ended)
        return one.id, await asyncio.shield(one.began)

    async def receive(self, publish_id: str, index: int, tensors: tuple[TensorSpec, ...]) -> None:
        """Returns when every server has the tensors of bucket `index`."""
        one = self._found(publish_id)
        self._allowed(one.spec.learner)
        if one.bucket != (index, tensors):
            one.accept(index, tensors, self._shape())
        await asyncio.shield(one.received)

    async def commit(self, publish_id: str) -> tuple[WeightVersion, PublishResult]:
        """Commits. Returns the version that the servers go on with, and the result of the
        publish."""
        one = self._found(publish_id)
        self._allowed(one.spec.learner)
        if not one.finishing:
            one.finish(self._shape())
        return one.spec.version, await asyncio.shield(one.committed)

    async def abort(self, publish_id: str) -> None:
        """Returns when the publish is over, if it was open."""
        if self._open is not None and self._open.id == publish_id:
            await self.end(_failed(self._open.spec.version, "its learner ended it"))

    async def end_others(self, learner: str) -> None:
        """Ends the publish of a learner that has lost the run to `learner`."""
        if self._open is not None and self._open.spec.learner != learner:
            try:
                self._allowed(self._open.spec.learner)
            except ServiceError as why:
                await self.end(why)

    async def yield_to_folder(self, version: WeightVersion) -> None:
        """Ends the open publish if `version` is newer than the served one: it comes by a folder."""
        served = self._publisher.version
        newer = version.lineage != served.lineage or version.step > served.step
        if newer and self._open is not None:
            await self.end(_failed(self._open.spec.version, f"{version} comes by a folder"))

    async def end(self, why: ServiceError) -> None:
        """Ends the open publish. Waits for a commit in progress instead. Returns when the servers
        are in order."""
        one, task = self._open, self._task
        if one is None or task is None:
            return
        if one.why is None and not one.finishing:
            one.fail(why)
            task.cancel()
        await asyncio.wait({task})

    async def stop(self) -> None:
        """Ends the open publish; no sampler stays paused."""
        if self._open is not None and self._task is not None:
            if self._open.why is None:
                self._task.cancel()
            await asyncio.wait({self._task})

    def _ended(self, task: asyncio.Task[None]) -> None:
        one, self._open = self._open, None
        if one is None:
            return
        self._last = one
        if not task.cancelled() and (error := task.exception()) is not None:
            one.fail(self._said(one, error))
        if one.why is not None:
            log.warning("publish_ended", version=str(one.spec.version), error=str(one.why))

    async def _live(self, one: Broadcast) -> None:
        """Runs the whole publish. Waiting calls get a failure before the servers are in order,
        because the learner's reaction frees them."""
        spec, publisher = one.spec, self._publisher
        try:
            async with publisher.turn(spec.learner):
                await self._check_place(spec)
                async with publisher.samplers(spec.learner), AsyncExitStack() as stack:
                    await publisher.record_given(spec.version)
                    await _reach(spec.meeting)
                    async with asyncio.timeout(spec.lease):
                        group = await stack.enter_async_context(
                            update_group(
                                self._control,
                                name=one.id,
                                version=spec.version,
                                meeting=spec.meeting,
                            )
                        )
                    try:
                        published = await one.serve(group)
                    except (PublishFailed, TimeoutError, asyncio.CancelledError) as error:
                        one.fail(self._said(one, error))
                        raise
                    await stack.aclose()
                    publisher.serve_without_folder(spec.version, published)
            one.committed.set_result(published)
        except asyncio.CancelledError as error:
            one.fail(self._said(one, error))
            raise

    def _said(self, one: Broadcast, error: BaseException) -> ServiceError:
        """The error that the learner gets."""
        version = one.spec.version
        match error:
            case ServiceError():
                return error
            case PublishFailed():
                return _failed(version, str(error))
            case TimeoutError():
                return _failed(version, f"its lease of {one.spec.lease:.0f} s ended")
            case asyncio.CancelledError():
                return self._publisher.shutting_down(f"{version} was not published")
        return internal(error) if isinstance(error, Exception) else _failed(version, repr(error))

    def _found(self, publish_id: str) -> Broadcast:
        """The publish with this id. Raises ServiceError unless it is open or was committed."""
        for one in (self._open, self._last):
            if one is not None and one.id == publish_id:
                if one.why is not None:
                    raise one.why
                return one
        raise ServiceError(
            reasons.ERROR_REASON_PUBLISH_FAILED,
            f"no publish {publish_id} is open here: it failed before, or the engine was restarted",
            subject=publish_id,
            fix=_FIX,
        )

    async def _check_place(self, spec: BroadcastSpec) -> None:
        """Raises ServiceError if the version is not the next one, or the policy's tensors are
        unknown."""
        publisher = self._publisher
        if spec.parent is not None or spec.version.lineage != publisher.version.lineage:
            raise ServiceError(
                reasons.ERROR_REASON_INVALID_REQUEST,
                f"{spec.version} opens a lineage, which begins with a folder",
                subject="version",
                fix="publish its first version by PublishWeights",
            )
        await publisher.check_version(spec.version, None)
        self._shape()

    def _shape(self) -> PolicyShape:
        """The policy that the samplers serve. Raises ServiceError if the engine does not know
        it."""
        if (shape := self._publisher.shape) is not None:
            return shape
        raise ServiceError(
            reasons.ERROR_REASON_INVALID_REQUEST,
            "the engine cannot read the folder of the policy that is served, so that it does not "
            "know which tensors make it whole",
            subject="version",
            fix="publish one version by PublishWeights",
        )


async def _reach(meeting: Rendezvous) -> None:
    """Raises ServiceError if the store's address does not answer: servers would wait there long."""
    try:
        async with asyncio.timeout(STORE_SECONDS):
            _, writer = await asyncio.open_connection(meeting.address, meeting.port)
    except (OSError, TimeoutError) as error:
        raise ServiceError(
            reasons.ERROR_REASON_PUBLISH_FAILED,
            f"the learner's store does not answer at {meeting.address}:{meeting.port} "
            f"({error or 'no answer in time'})",
            subject="master_address",
            fix="give an address of the learner that engine and samplers reach",
        ) from error
    writer.close()


def _check_spec(spec: BroadcastSpec) -> None:
    meeting = spec.meeting
    if meeting.backend not in BACKENDS:
        raise refused(f"backend is {meeting.backend!r}: it is one of {', '.join(BACKENDS)}")
    if not meeting.address or not 0 < meeting.port < 1 << 16:
        raise refused(f"{meeting.address!r}:{meeting.port} is not an address of a store")


def _failed(version: WeightVersion, why: str) -> ServiceError:
    return ServiceError(
        reasons.ERROR_REASON_PUBLISH_FAILED,
        f"{version} was not published over the group: {why}",
        subject=str(version),
        fix=_FIX,
    )
