"""The engine's side of a publish over a process group: begin, buckets, commit.

BeginPublish retries like every call of the client. A bucket and a commit are sent again after a
broken connection, since the engine joins them to the running publish. They stop at their timeout:
the samplers are paused meanwhile.

Raises GroupError for a refusal or a failure, which ends the publish, and TakenError if another
learner has the run. Does not know the group itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
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


class GroupPublish:
    """One publish that the engine has opened."""

    def __init__(self, client: EngineClient, publish_id: str, world_size: int) -> None:
        self.name = publish_id
        self.world_size = world_size
        self._client = client

    @classmethod
    def begin(
        cls,
        client: EngineClient,
        version: WeightVersion,
        *,
        address: str,
        port: int,
        backend: str,
        lease: float,
    ) -> GroupPublish:
        """Has all samplers join, at the address and port of the first rank.

        lease: the engine gives up after this many seconds without a call.
        """
        request = policy_pb2.BeginPublishRequest(
            version=wire.version_to_proto(version),
            train_step=version.step,
            master_address=address,
            master_port=port,
            backend=backend,
            lease=wire.duration(lease),
            learner=client.learner,
        )
        try:
            answer = client.call_policy("BeginPublish", request, timeout=PUBLISH_S)
        except EngineError as error:
            if isinstance(error.__cause__, ServiceError):
                raise GroupError(str(error)) from error
            raise
        return cls(client, answer.publish_id, answer.world_size)

    def bucket(
        self, index: int, tensors: Sequence[policy_pb2.TensorMeta], *, timeout: float
    ) -> Future[policy_pb2.PublishBucketResponse]:
        """Begins to hand tensors to all samplers. The future ends when each sampler has them."""
        request = policy_pb2.PublishBucketRequest(
            publish_id=self.name, index=index, tensors=tensors
        )
        return self._begin("PublishBucket", request, timeout)

    def commit(self, *, timeout: float) -> float:
        """Has the samplers serve the version. Returns the length of their pause, in seconds."""
        request = policy_pb2.CommitPublishRequest(publish_id=self.name)
        answer = outcome(self._begin("CommitPublish", request, timeout))
        return float(answer.paused.ToTimedelta().total_seconds())

    def abort(self) -> None:
        """Ends the publish. If the engine is unreachable, the end of its lease does."""
        request = policy_pb2.AbortPublishRequest(publish_id=self.name)
        try:
            outcome(self._begin("AbortPublish", request, ABORT_S))
        except GroupError:
            return

    def _begin(self, name: str, request: Any, timeout: float) -> Future[Any]:
        return self._client.begin(_call(self._client, name, request, timeout))


async def _call(client: EngineClient, name: str, request: Any, timeout: float) -> Any:
    deadline = time.monotonic() + timeout
    tries = 0
    while True:
        try:
            left = deadline - time.monotonic()
            return await client.call_policy_once(name, request, timeout=left)
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
