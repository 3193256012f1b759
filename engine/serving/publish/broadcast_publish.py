"""The calls of a publish over a group: begin, buckets, commit, abort, and what ends an open one.

policy.proto describes the calls, and `publish_state.py` the states.

The learner's side
- Its store (torch's TCPStore) listens before BeginPublish. The engine connects to it once before it
  contacts any server. So a wrong address is refused and blocks no server.
- The learner makes its side of the group at once, as rank 0. All servers that are up join at once:
  SGLang answers when the group is whole, and samples nothing until then.
- PublishBucket(0) may and should be sent before the learner's side of the group stands: it fails at
  once if a server does not join. SGLang does not notice a tensor of another size: the learner must
  keep list and broadcast equal.
- After a failure, or before AbortPublish, the learner closes its side of the group at once and its
  store a few seconds later. The first frees servers that receive, the second those that still join.
  A server that looks for a store that is closed already looks for half an hour.
- A commit needs every tensor of the served policy; tied heads may be left out. The folder of the
  version may come after a later version was committed.

Refusals (INVALID_ARGUMENT, not to be retried) leave the publish as it is. After a failure
(PUBLISH_FAILED) the learner begins again with a new store, or publishes a folder:
- A server that failed is set aside. A server that got a bucket holds mixed weights: it is set aside
  too, its requests go elsewhere, and it gets the newest folder. Others go on as before.
- The previous version stays. While it has no folder, servers that are set aside wait for the
  folder.

Invariants
- One publish over a group is open at a time. A learner that publishes a newer version, or begins
  again, ends the open one. So does a learner that takes the run over.
- A caller that goes away leaves a publish to its lease; the same request again joins it.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.core.sampler.control import PublishResult, WeightControl
from engine.core.sampler.update_group import Rendezvous, TensorSpec
from engine.serving.publish.publish import Publish
from engine.serving.publish.publish_state import Stage, refused
from engine.serving.publish.publishing import Publisher
from engine.serving.publish.transports import FIX, GroupTransport, group_failure, known_shape
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion

BACKENDS = ("gloo", "nccl")


class BroadcastPublishes:
    """The open publish over a group, and the end of the last one."""

    def __init__(
        self, publisher: Publisher, control: WeightControl, allowed: Callable[[str], None]
    ) -> None:
        """allowed: raises ServiceError for a learner that does not have the run."""
        self._publisher = publisher
        self._control = control
        self._allowed = allowed
        self._open: Publish | None = None
        self._last: Publish | None = None

    async def begin(
        self,
        version: WeightVersion,
        parent: WeightVersion | None,
        *,
        meeting: Rendezvous,
        lease: float,
        learner: str,
    ) -> tuple[str, int]:
        """Begins or joins a publish. Returns its id and the world size of its group; the servers
        are joining.

        lease: longest time without progress, in seconds.
        """
        self._allowed(learner)
        if meeting.backend not in BACKENDS:
            raise refused(f"backend is {meeting.backend!r}: it is one of {', '.join(BACKENDS)}")
        if not meeting.address or not 0 < meeting.port < 1 << 16:
            raise refused(f"{meeting.address!r}:{meeting.port} is not an address of a store")
        transport = GroupTransport(
            version=version,
            parent=parent,
            learner=learner,
            control=self._control,
            meeting=meeting,
            lease=lease,
        )
        # The same request again joins the publish, unless it has failed and is only being cleaned
        # up.
        while (held := self._open) is not None and (
            held.transport != transport or held.state.stage is Stage.FAILED
        ):
            await self._end("its learner began another publish")
        one = self._open
        if one is None:
            one = self._open = self._publisher.start(transport)
            one.task.add_done_callback(self._ended)
        return one.id, (await one.until(lambda state: state.world_size > 0)).world_size

    async def receive(self, publish_id: str, index: int, tensors: tuple[TensorSpec, ...]) -> None:
        """Returns when every server has the tensors of bucket `index`."""
        one = self._found(publish_id)
        if one.state.bucket != (index, tensors):
            one.become(one.state.accept(index, tensors, known_shape(self._publisher.served)))
        await one.until(lambda state: state.received > index)

    async def commit(self, publish_id: str) -> tuple[WeightVersion, PublishResult]:
        """Commits. Returns the version that the servers go on with, and the result of the
        publish."""
        one = self._found(publish_id)
        if one.state.stage not in (Stage.COMMITTING, Stage.SERVED):
            one.become(one.state.commit(known_shape(self._publisher.served)))
        return one.transport.version, await one.result()

    async def abort(self, publish_id: str) -> None:
        """Returns when the publish is over, if it was open."""
        if self._open is not None and self._open.id == publish_id:
            await self._end("its learner ended it")

    async def end_others(self, learner: str) -> None:
        """Ends the publish of a learner that has lost the run to `learner`."""
        if self._open is not None and self._open.transport.learner != learner:
            try:
                self._allowed(self._open.transport.learner)
            except ServiceError as why:
                await self._open.end(why)

    async def yield_to_folder(self, version: WeightVersion) -> None:
        """Ends the open publish if `version` is newer than the served one: it comes by a folder."""
        if self._publisher.served.precedes(version):
            await self._end(f"{version} comes by a folder")

    async def _end(self, why: str) -> None:
        if self._open is not None:
            await self._open.end(group_failure(self._open.transport.version, why))

    def _ended(self, _task: object) -> None:
        self._last, self._open = self._open, None

    def _found(self, publish_id: str) -> Publish:
        """The publish with this id. Raises ServiceError unless its learner has the run, and it is
        open or was committed."""
        for one in (self._open, self._last):
            if one is not None and one.id == publish_id:
                if one.state.error is not None:
                    raise one.state.error
                self._allowed(one.transport.learner)
                return one
        raise ServiceError(
            reasons.ERROR_REASON_PUBLISH_FAILED,
            f"no publish {publish_id} is open here: it failed before, or the engine was restarted",
            subject=publish_id,
            fix=FIX,
        )
