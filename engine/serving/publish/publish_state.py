"""State of one publish. Pure: no clock, no task, no sampler.

A publish by a folder commits with its request. A publish over a group opens first, and takes the
weights in buckets.

| stage | event | next stage | by |
|---|---|---|---|
| WAITING | OPEN | OPEN | group: its turn came, and the samplers join |
| WAITING | COMMIT | COMMITTING | folder: its turn came, and the samplers load |
| WAITING | SERVE | SERVED | folder: the samplers have the version already |
| OPEN | BUCKET | RECEIVING | the next bucket, of new tensors that fit the policy |
| RECEIVING | RECEIVE | OPEN | every sampler has the bucket |
| OPEN | COMMIT | COMMITTING | every tensor of the policy came |
| COMMITTING | SERVE | SERVED | the samplers go on with the version |
| WAITING, OPEN, RECEIVING | END | FAILED | an abort, another publish, or another learner |
| WAITING, OPEN, RECEIVING, COMMITTING | FAIL | FAILED | a refusal, a failure, or the engine's end |

SERVED and FAILED are final. An END of a publish that commits only waits for it. `ServedWeights`
holds the versions that are SERVED without a folder until PublishWeights names it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from engine.core.sampler.control import PublishResult
from engine.core.sampler.update_group import TensorSpec
from engine.serving.publish.policy_shape import PolicyShape, misfit, missing
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError

Stage = StrEnum("Stage", "WAITING OPEN RECEIVING COMMITTING SERVED FAILED")
Event = StrEnum("Event", "OPEN BUCKET RECEIVE COMMIT SERVE END FAIL")

TRANSITIONS = {
    (Stage.WAITING, Event.OPEN): Stage.OPEN,
    (Stage.WAITING, Event.COMMIT): Stage.COMMITTING,
    (Stage.WAITING, Event.SERVE): Stage.SERVED,
    (Stage.OPEN, Event.BUCKET): Stage.RECEIVING,
    (Stage.RECEIVING, Event.RECEIVE): Stage.OPEN,
    (Stage.OPEN, Event.COMMIT): Stage.COMMITTING,
    (Stage.COMMITTING, Event.SERVE): Stage.SERVED,
    **{(stage, Event.END): Stage.FAILED for stage in list(Stage)[:3]},
    **{(stage, Event.FAIL): Stage.FAILED for stage in list(Stage)[:4]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishState:
    """A state of a publish. Raises ServiceError for an event that it does not take."""

    stage: Stage = Stage.WAITING
    world_size: int = 0
    """Size of the group with rank 0; 0 before it is open."""
    bucket: tuple[int, tuple[TensorSpec, ...]] | None = None
    """The last bucket with its index."""
    received: int = 0
    """Number of buckets that every sampler has."""
    came: frozenset[str] = frozenset()
    """Names of the tensors of all buckets."""
    result: PublishResult | None = None
    error: Exception | None = None
    """The error of a publish that FAILED."""

    def takes(self, event: Event) -> bool:
        """Whether the event changes the stage."""
        return (self.stage, event) in TRANSITIONS

    def after(self, event: Event, **changes: Any) -> PublishState:
        """The state after an event, with changed fields."""
        if not self.takes(event):
            raise refused(f"a publish that is {self.stage} does not {event}")
        return replace(self, stage=TRANSITIONS[self.stage, event], **changes)

    def accept(
        self, index: int, tensors: tuple[TensorSpec, ...], shape: PolicyShape
    ) -> PublishState:
        """After a bucket for the samplers of `shape`."""
        if self.stage in (Stage.COMMITTING, Stage.SERVED):
            raise refused(f"bucket {index} comes after the commit")
        self._refuse_while_receiving()
        if index != self.received:
            raise refused(f"bucket {index} is out of order: {self.received} is next")
        if not tensors:
            raise refused(f"bucket {index} has no tensors")
        came = set(self.came)
        for tensor in tensors:
            if tensor.name in came:
                raise refused(f"tensor {tensor.name} came before")
            came.add(tensor.name)
            if wrong := misfit(shape, tensor.name, tensor.dtype, tensor.shape):
                raise refused(wrong)
        return self.after(Event.BUCKET, bucket=(index, tensors), came=frozenset(came))

    def commit(self, shape: PolicyShape | None = None) -> PublishState:
        """After a commit. shape: the policy whose tensors must have come; None for a folder."""
        self._refuse_while_receiving()
        if shape is not None and (lacking := missing(shape, self.came)):
            raise refused(
                f"{len(lacking)} tensors of the policy did not come, {lacking[0]} is the first"
            )
        return self.after(Event.COMMIT)

    def _refuse_while_receiving(self) -> None:
        if self.stage is Stage.RECEIVING:
            raise refused(f"bucket {self.received} is still under way")


def refused(message: str) -> ServiceError:
    """The error of a request that leaves the publish unchanged."""
    return ServiceError(reasons.ERROR_REASON_INVALID_REQUEST, message)
