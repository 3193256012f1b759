"""One publish over a group, from BeginPublish to its end: received buckets, due buckets, waiting
calls.

It knows neither the run nor other publishes: `broadcast_publish.py` does, and documents the
protocol.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import Any

from engine.core.sampler.control import PublishResult
from engine.core.sampler.update_group import Rendezvous, TensorSpec, UpdateGroup
from engine.serving.publish.policy_shape import PolicyShape, misfit, missing
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastSpec:
    """Parameters of BeginPublish. Equal parameters mean the same publish."""

    version: WeightVersion
    parent: WeightVersion | None
    meeting: Rendezvous
    lease: float
    """Longest time without progress, in seconds."""
    learner: str


class Broadcast:
    """One publish, from BeginPublish to its end."""

    def __init__(self, spec: BroadcastSpec) -> None:
        self.id = uuid.uuid4().hex
        self.spec = spec
        self.began = _future()
        """Future of the world size."""
        self.bucket: tuple[int, tuple[TensorSpec, ...]] | None = None
        """The last bucket with its index."""
        self.received = _future()
        """Done when the servers have that bucket."""
        self.came: set[str] = set()
        self.committed = _future()
        """Future of the publish's result."""
        self.finishing = False
        self.why: ServiceError | None = None
        """The error that ended it."""
        self._work: asyncio.Queue[tuple[TensorSpec, ...] | None] = asyncio.Queue()
        """The next bucket for the servers; None is the commit. At most one waits."""

    def fail(self, why: ServiceError) -> None:
        """Gives the error to all waiting and later calls."""
        self.why = self.why or why
        for waiting in (self.began, self.received, self.committed):
            if not waiting.done():
                waiting.set_exception(self.why)
                waiting.exception()  # no call need be waiting

    def accept(self, index: int, tensors: tuple[TensorSpec, ...], shape: PolicyShape) -> None:
        """Accepts a bucket for `serve`. Raises ServiceError for a bucket that must not reach the
        servers.

        shape: the policy that they serve.
        """
        if self.finishing:
            raise refused(f"bucket {index} comes after the commit")
        if self.bucket is not None and not self.received.done():
            raise refused(f"bucket {self.bucket[0]} is still under way")
        due = 0 if self.bucket is None else self.bucket[0] + 1
        if index != due:
            raise refused(f"bucket {index} is out of order: {due} is next")
        if not tensors:
            raise refused(f"bucket {index} has no tensors")
        seen = set(self.came)
        for tensor in tensors:
            if tensor.name in seen:
                raise refused(f"tensor {tensor.name} came before")
            seen.add(tensor.name)
            wrong = misfit(shape, tensor.name, tensor.dtype, tensor.shape)
            if wrong is not None:
                raise refused(wrong)
        self.bucket = index, tensors
        self.received = _future()
        self.came = seen
        self._work.put_nowait(tensors)

    def finish(self, shape: PolicyShape) -> None:
        """Accepts the commit for `serve`. Raises ServiceError if the policy is not whole."""
        if self.bucket is not None and not self.received.done():
            raise refused(f"bucket {self.bucket[0]} is still under way")
        if lacking := missing(shape, self.came):
            raise refused(
                f"{len(lacking)} tensors of the policy did not come, {lacking[0]} is the first"
            )
        self.finishing = True
        self._work.put_nowait(None)

    async def serve(self, group: UpdateGroup) -> PublishResult:
        """Passes buckets to the group until the commit. Raises TimeoutError if the lease ends."""
        joining = asyncio.ensure_future(group.join())
        try:
            self.began.set_result(group.world_size)
            while True:
                async with asyncio.timeout(self.spec.lease):
                    tensors = await self._next(joining)
                    if tensors is None:
                        break
                    await asyncio.shield(joining)
                    await group.receive(tensors)
                    self.received.set_result(None)
            return await group.finish()
        finally:
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)

    async def _next(self, joining: asyncio.Future[None]) -> tuple[TensorSpec, ...] | None:
        """The learner's next bucket, or None for the commit. Raises an error of the servers'
        joining at once."""
        bucket = asyncio.ensure_future(self._work.get())
        try:
            waiting: set[asyncio.Future[Any]] = {bucket}
            if not joining.done():
                waiting.add(joining)
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if joining.done():
                joining.result()
            return await bucket
        finally:
            bucket.cancel()


def refused(message: str) -> ServiceError:
    """The error of a request that leaves the publish unchanged."""
    return ServiceError(reasons.ERROR_REASON_INVALID_REQUEST, message)


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()
