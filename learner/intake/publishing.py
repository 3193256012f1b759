"""A publish over a process group, as the engine is asked for it: begin, buckets, commit.

Beginning is patient, as every call of the client is. A bucket and a commit are sent again where the
line broke, since the engine joins them to what is under way, and no longer than they are given:
samplers stand still meanwhile.

Whatever the engine refuses or fails is a GroupError, and the publish is over; TakenError as ever.

Does not know the group itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from learner.errors import EngineError, GroupError, TakenError
from learner.intake.background import outcome
from learner.intake.client import PUBLISH_S, EngineClient
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.policy.v1 import policy_pb2
from toolwright.rpc.channel import backoff, may_retry
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.types import WeightVersion

ABORT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorName:
    """One tensor of a bucket. dtype: torch's word. shape: as in the Hugging Face folder."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Where samplers meet the first rank."""

    address: str
    port: int
    backend: str


class GroupPublish:
    """One publish that the engine has opened."""

    def __init__(self, client: EngineClient, publish_id: str, world_size: int) -> None:
        self.name = publish_id
        self.world_size = world_size
        self._client = client

    @classmethod
    def begin(
        cls, client: EngineClient, version: WeightVersion, meeting: Meeting, *, lease: float
    ) -> GroupPublish:
        """Has all samplers told to join. lease: seconds of silence until the engine gives up."""
        request = policy_pb2.BeginPublishRequest(
            version=wire.version_to_proto(version),
            train_step=version.step,
            master_address=meeting.address,
            master_port=meeting.port,
            backend=meeting.backend,
            lease=wire.duration(lease),
            learner=client.learner,
        )
        try:
            answer = client.ask_policy("BeginPublish", request, timeout=PUBLISH_S)
        except EngineError as error:
            if isinstance(error.__cause__, ServiceError):
                raise GroupError(str(error)) from error
            raise
        return cls(client, answer.publish_id, answer.world_size)

    def bucket(
        self, index: int, tensors: Sequence[TensorName], *, timeout: float
    ) -> Future[policy_pb2.PublishBucketResponse]:
        """Begins to hand a list of tensors to all samplers; the future ends when each has them."""
        request = policy_pb2.PublishBucketRequest(
            publish_id=self.name,
            index=index,
            tensors=[
                policy_pb2.TensorMeta(name=t.name, dtype=t.dtype, shape=t.shape) for t in tensors
            ],
        )
        return self._begin("PublishBucket", request, timeout)

    def commit(self, *, timeout: float) -> float:
        """The samplers go on as the version; returns how long they stood still, seconds."""
        request = policy_pb2.CommitPublishRequest(publish_id=self.name)
        answer = outcome(self._begin("CommitPublish", request, timeout))
        return float(answer.paused.ToTimedelta().total_seconds())

    def abort(self) -> None:
        """Ends it, if the engine can be told; else its lease does."""
        request = policy_pb2.AbortPublishRequest(publish_id=self.name)
        try:
            outcome(self._begin("AbortPublish", request, ABORT_S))
        except GroupError:
            return

    def _begin(self, name: str, request: Any, timeout: float) -> Future[Any]:
        return self._client.begin(_asked(self._client, name, request, timeout))


async def _asked(client: EngineClient, name: str, request: Any, timeout: float) -> Any:
    deadline = time.monotonic() + timeout
    tries = 0
    while True:
        try:
            left = deadline - time.monotonic()
            return await client.ask_policy_once(name, request, timeout=left)
        except ServiceError as error:
            if error.reason == reasons.ERROR_REASON_SUPERSEDED:
                raise TakenError(f"engine at {client.address}: {error}") from error
            raise GroupError(str(error)) from error
        except TransportError as error:
            wait = backoff(tries, error)
            if not may_retry(error) or time.monotonic() + wait >= deadline:
                raise GroupError(f"no answer to {name} ({error})") from error
            await asyncio.sleep(wait)
            tries += 1
