"""Publishes over a distributed group: the learner broadcasts, samplers receive, no folder between.

The way of one publish, as its learner meets it
- Its store (torch's TCPStore) listens before BeginPublish. The engine connects to it once, before
  any server is told, so that a wrong address is refused and hangs nobody.
- BeginPublish checks what PublishWeights checks but the folder, waits for evaluation, and answers
  `publish_id` and `world_size` = 1 + the ranks of the servers that are up. All of them are told to
  join at once: SGLang answers when the group is whole, and samples nothing until then. So the
  learner makes its side of the group at once, as rank 0, with `publish_id` as the group's name and
  as the prefix of its keys in the store.
- PublishBucket(0) may be asked before the learner's side of the group stands, and should: it fails
  at once where a server does not join. Once all have joined it pauses the servers. Each bucket is
  handed to all servers at once and answers when each has it: the learner broadcasts its tensors
  from rank 0, each by itself, in the order of the list, while the RPC is under way. SGLang does not
  notice a tensor of another size: list and broadcast are the learner's to keep alike.
- After a failure, or before AbortPublish, the learner closes its side of the group at once and its
  store a few seconds later. The first frees servers that receive, the second those that still join;
  a server that looks for a store that is closed already looks for half an hour.
- CommitPublish wants every tensor of the served policy; tied heads may be left out. It
  answers when the servers go on as the version. Then the learner may close its
  group: the servers have left it.
- PublishWeights of the same version names the folder, whenever it is written. It moves no sampler,
  waits for no other publish, and may come after a later version was committed.

What is refused, and leaves an open publish as it was (INVALID_ARGUMENT, not to be asked again)
- A bucket out of order, without tensors, or beside one that is under way; a tensor that the served
  policy has not, of another shape or kind, or that came before; a commit with tensors missing; a
  new lineage, which begins with a folder.

What fails, and ends the publish (PUBLISH_FAILED: begin again with a new store, or by a folder)
- A store that the engine cannot reach; a server that does not join, dies or refuses; a lease that
  ends; no server that is up, where the newest version has no folder or none comes back in time.
- A publish that is not open, by its id: it failed before, or in an earlier life of the engine.
- A server that failed is set aside. One that was handed a bucket holds mixed weights: it is set
  aside too, its requests go elsewhere, and it gets the newest folder. Others go on as they were.
- The version before stays. While it has no folder, servers that are set aside wait for that.

Invariants
- One publish at a time is open, and none beside one by folder. A learner that publishes anything
  newer, or begins again, ends the one that is open; so does a learner that takes the run over.
- A caller that goes away leaves a publish to its lease; the same request asked again joins it.
- The journal names no version of a group before its folder was seen to be whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import structlog

from engine.core.sampler.control import Published, WeightControl
from engine.core.sampler.update_group import Meeting, Tensor, update_group
from engine.errors import PublishFailed
from engine.serving.publish.broadcast import Broadcast, BroadcastAsked, refused
from engine.serving.publish.policy_shape import PolicyShape
from engine.serving.publish.publishing import Publisher
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError, internal
from toolwright.types import WeightVersion

BACKENDS = ("gloo", "nccl")
STORE_SECONDS = 5.0
"""For a connection to the learner's store."""
_FIX = "begin again with a new store, or publish a folder"

log = structlog.get_logger("publish")


class BroadcastPublishes:
    """The publish over a group that is open, and how the last one ended."""

    def __init__(
        self, publisher: Publisher, control: WeightControl, allowed: Callable[[str], None]
    ) -> None:
        """allowed: raises ServiceError for a learner whose the run is not."""
        self._publisher = publisher
        self._control = control
        self._allowed = allowed
        self._open: Broadcast | None = None
        self._last: Broadcast | None = None
        self._task: asyncio.Task[None] | None = None

    async def begin(self, asked: BroadcastAsked) -> tuple[str, int]:
        """(id of the publish, world size of its group); the servers were told to join."""
        self._allowed(asked.learner)
        _check_asked(asked)
        # The same one asked again is joined, unless it has failed and is only being put in order.
        while (held := self._open) is not None and (held.asked != asked or held.why is not None):
            await self.end(_failed(held.asked.version, "its learner began another publish"))
        one = self._open
        if one is None:
            one = self._open = Broadcast(asked)
            self._task = asyncio.get_running_loop().create_task(self._live(one))
            self._task.add_done_callback(self._ended)
        return one.id, await asyncio.shield(one.began)

    async def receive(self, publish_id: str, index: int, tensors: tuple[Tensor, ...]) -> None:
        """Returns when every server has the tensors of bucket `index`."""
        one = self._found(publish_id)
        self._allowed(one.asked.learner)
        if one.bucket != (index, tensors):
            one.take(index, tensors, self._shape())
        await asyncio.shield(one.received)

    async def commit(self, publish_id: str) -> tuple[WeightVersion, Published]:
        """The version that the servers go on as, and what that took."""
        one = self._found(publish_id)
        self._allowed(one.asked.learner)
        if not one.finishing:
            one.finish(self._shape())
        return one.asked.version, await asyncio.shield(one.committed)

    async def abort(self, publish_id: str) -> None:
        """Returns when the publish is over, if it was open."""
        if self._open is not None and self._open.id == publish_id:
            await self.end(_failed(self._open.asked.version, "its learner ended it"))

    async def end_others(self, learner: str) -> None:
        """Ends what a learner opened that has lost the run to `learner`."""
        if self._open is not None and self._open.asked.learner != learner:
            try:
                self._allowed(self._open.asked.learner)
            except ServiceError as why:
                await self.end(why)

    async def give_way(self, version: WeightVersion) -> None:
        """Ends what is open where `version` is newer than what is served: it comes by a folder."""
        served = self._publisher.version
        newer = version.lineage != served.lineage or version.step > served.step
        if newer and self._open is not None:
            await self.end(_failed(self._open.asked.version, f"{version} comes by a folder"))

    async def end(self, why: ServiceError) -> None:
        """Ends what is open, but not amid a commit, for which it waits. Returns when the servers
        are in order."""
        one, task = self._open, self._task
        if one is None or task is None:
            return
        if one.why is None and not one.finishing:
            one.fail(why)
            task.cancel()
        await asyncio.wait({task})

    async def stop(self) -> None:
        """Ends what is open; no sampler stays paused."""
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
            log.warning("publish_ended", version=str(one.asked.version), error=str(one.why))

    async def _live(self, one: Broadcast) -> None:
        """The publish as a whole. Whoever waits hears of a failure before the servers are in order:
        what the learner does then is what frees them."""
        asked, publisher = one.asked, self._publisher
        try:
            async with publisher.turn(asked.learner):
                await self._check_place(asked)
                async with publisher.samplers(asked.learner), AsyncExitStack() as stack:
                    await publisher.give(asked.version)
                    await _reach(asked.meeting)
                    async with asyncio.timeout(asked.lease):
                        group = await stack.enter_async_context(
                            update_group(
                                self._control,
                                name=one.id,
                                version=asked.version,
                                meeting=asked.meeting,
                            )
                        )
                    try:
                        published = await one.serve(group)
                    except (PublishFailed, TimeoutError, asyncio.CancelledError) as error:
                        one.fail(self._said(one, error))
                        raise
                    await stack.aclose()
                    publisher.came_over_a_group(asked.version, published)
            one.committed.set_result(published)
        except asyncio.CancelledError as error:
            one.fail(self._said(one, error))
            raise

    def _said(self, one: Broadcast, error: BaseException) -> ServiceError:
        """An error as the learner hears of it."""
        version = one.asked.version
        match error:
            case ServiceError():
                return error
            case PublishFailed():
                return _failed(version, str(error))
            case TimeoutError():
                return _failed(version, f"its lease of {one.asked.lease:.0f} s ended")
            case asyncio.CancelledError():
                return self._publisher.shutting_down(f"{version} was not published")
        return internal(error) if isinstance(error, Exception) else _failed(version, repr(error))

    def _found(self, publish_id: str) -> Broadcast:
        """ServiceError for one that is not open, and was not committed."""
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

    async def _check_place(self, asked: BroadcastAsked) -> None:
        """ServiceError where the version is not next, or the policy's tensors are not known."""
        publisher = self._publisher
        if asked.parent is not None or asked.version.lineage != publisher.version.lineage:
            raise ServiceError(
                reasons.ERROR_REASON_INVALID_REQUEST,
                f"{asked.version} opens a lineage, which begins with a folder",
                subject="version",
                fix="publish its first version by PublishWeights",
            )
        await publisher.check_version(asked.version, None)
        self._shape()

    def _shape(self) -> PolicyShape:
        """The policy that the samplers serve. ServiceError where the engine cannot tell."""
        if (shape := self._publisher.shape) is not None:
            return shape
        raise ServiceError(
            reasons.ERROR_REASON_INVALID_REQUEST,
            "the engine cannot read the folder of the policy that is served, so that it does not "
            "know which tensors make it whole",
            subject="version",
            fix="publish one version by PublishWeights",
        )


async def _reach(meeting: Meeting) -> None:
    """ServiceError where nobody listens at the store's address: servers would wait there long."""
    try:
        async with asyncio.timeout(STORE_SECONDS):
            _, writer = await asyncio.open_connection(meeting.address, meeting.port)
    except (OSError, TimeoutError) as error:
        raise ServiceError(
            reasons.ERROR_REASON_PUBLISH_FAILED,
            f"nobody answers at the learner's store, {meeting.address}:{meeting.port} "
            f"({error or 'no answer in time'})",
            subject="master_address",
            fix="give an address of the learner that engine and samplers reach",
        ) from error
    writer.close()


def _check_asked(asked: BroadcastAsked) -> None:
    meeting = asked.meeting
    if meeting.backend not in BACKENDS:
        raise refused(f"backend is {meeting.backend!r}: it is one of {', '.join(BACKENDS)}")
    if not meeting.address or not 0 < meeting.port < 1 << 16:
        raise refused(f"{meeting.address!r}:{meeting.port} is no address of a store")


def _failed(version: WeightVersion, why: str) -> ServiceError:
    return ServiceError(
        reasons.ERROR_REASON_PUBLISH_FAILED,
        f"{version} was not published over the group: {why}",
        subject=str(version),
        fix=_FIX,
    )
