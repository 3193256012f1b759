"""One publish over a group, from BeginPublish to its end: what came, what is due, who waits.

Knows neither the run nor its other publishes: that is `broadcast_publish.py`, which also says how
the learner meets it.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import Any

from engine.core.sampler.control import Published
from engine.core.sampler.update_group import Meeting, Tensor, UpdateGroup
from engine.serving.publish.policy_shape import PolicyShape, misfit, missing
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastAsked:
    """What BeginPublish asks for: two that are equal are the same publish. lease: seconds."""

    version: WeightVersion
    parent: WeightVersion | None
    meeting: Meeting
    lease: float
    learner: str


class Broadcast:
    """One publish, from BeginPublish to its end."""

    def __init__(self, asked: BroadcastAsked) -> None:
        self.id = uuid.uuid4().hex
        self.asked = asked
        self.began = _future()
        """Gets the world size."""
        self.bucket: tuple[int, tuple[Tensor, ...]] | None = None
        """The last one."""
        self.received = _future()
        """The servers have that one."""
        self.came: set[str] = set()
        self.committed = _future()
        """Gets what the publish did."""
        self.finishing = False
        self.why: ServiceError | None = None
        """What ended it."""
        self._work: asyncio.Queue[tuple[Tensor, ...] | None] = asyncio.Queue()
        """The next bucket for the servers; None is the commit. At most one waits."""

    def fail(self, why: ServiceError) -> None:
        """Whoever waits, or asks later, hears of it."""
        self.why = self.why or why
        for waiting in (self.began, self.received, self.committed):
            if not waiting.done():
                waiting.set_exception(self.why)
                waiting.exception()  # nobody needs to wait

    def take(self, index: int, tensors: tuple[Tensor, ...], shape: PolicyShape) -> None:
        """Takes a bucket in, for `serve`. ServiceError for one that the servers shall not hear of.

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
        """The commit, for `serve`. ServiceError where the policy is not whole."""
        if self.bucket is not None and not self.received.done():
            raise refused(f"bucket {self.bucket[0]} is still under way")
        if lacking := missing(shape, self.came):
            raise refused(
                f"{len(lacking)} tensors of the policy did not come, {lacking[0]} is the first"
            )
        self.finishing = True
        self._work.put_nowait(None)

    async def serve(self, group: UpdateGroup) -> Published:
        """Buckets until the commit. TimeoutError where the lease ends."""
        joining = asyncio.ensure_future(group.join())
        try:
            self.began.set_result(group.world_size)
            while True:
                async with asyncio.timeout(self.asked.lease):
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

    async def _next(self, joining: asyncio.Future[None]) -> tuple[Tensor, ...] | None:
        """What the learner asks for next. Raises at once what the servers' joining raises."""
        asked = asyncio.ensure_future(self._work.get())
        try:
            waiting: set[asyncio.Future[Any]] = {asked}
            if not joining.done():
                waiting.add(joining)
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if joining.done():
                joining.result()
            return await asked
        finally:
            asked.cancel()


def refused(message: str) -> ServiceError:
    """A request that leaves the publish as it was."""
    return ServiceError(reasons.ERROR_REASON_INVALID_REQUEST, message)


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()
