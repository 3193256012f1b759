"""The two transports of weights to the samplers: a folder, and a distributed group."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from engine.core.sampler.control import PublishResult, WeightControl
from engine.core.sampler.update_group import Rendezvous, UpdateGroup, update_group
from engine.errors import PublishFailed
from engine.serving.publish.adapter_folder import check_adapter_folder
from engine.serving.publish.policy_folder import BrokenFolder, check_policy_folder
from engine.serving.publish.policy_shape import PolicyShape, difference
from engine.serving.publish.publish import Publish, Transport
from engine.serving.publish.publish_state import Event, Stage
from engine.serving.publish.versions import ServedWeights
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion

STORE_SECONDS = 5.0
"""Timeout of a connection to the learner's store."""
FIX = "begin again with a new store, or publish a folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderTransport(Transport):
    """Every sampler reads the folder."""

    control: WeightControl
    folder: Path

    async def check(self, served: ServedWeights) -> PolicyShape:
        """Raises ServiceError unless the folder is whole and holds the policy that is served, or
        an adapter of it where adapters are published."""
        try:
            if self.control.base is not None:
                shape = known_shape(served)
                await asyncio.to_thread(check_adapter_folder, self.folder, shape)
                return shape
            shape = await asyncio.to_thread(check_policy_folder, self.folder)
        except BrokenFolder as error:
            raise ServiceError(
                reasons.ERROR_REASON_INVALID_REQUEST,
                str(error),
                subject="path",
                fix="publish a whole Hugging Face folder that engine and samplers can read"
                if self.control.base is None
                else "publish a PEFT folder of the policy that the run began with",
            ) from error
        wrong = difference(served.shape, shape) if served.shape is not None else None
        if wrong is not None:
            raise ServiceError(
                reasons.ERROR_REASON_INVALID_REQUEST,
                f"{self.folder} holds another policy than the samplers serve: {wrong}",
                subject="path",
                fix="publish the policy that the run began with, trained further; another one "
                "needs a run.folder of its own",
            )
        return shape

    async def move(self, one: Publish, served: ServedWeights) -> PublishResult:
        one.become(one.state.commit())
        try:
            return await self.control.publish(self.version, self.folder)
        except PublishFailed as error:
            raise ServiceError(
                reasons.ERROR_REASON_PUBLISH_FAILED,
                f"no sampler took version {self.version}, so {served.version} stays: {error}",
                subject=str(self.version),
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTransport(Transport):
    """The learner broadcasts, the samplers receive. `broadcast_publish.py` passes its calls on."""

    control: WeightControl
    meeting: Rendezvous
    lease: float
    """Longest time without progress, in seconds."""

    async def check(self, served: ServedWeights) -> PolicyShape:
        """Raises ServiceError for a new lineage, if the policy's tensors are unknown, or where
        adapters are published."""
        if self.control.base is not None:
            raise ServiceError(
                reasons.ERROR_REASON_INVALID_REQUEST,
                "run.publish_adapters = true: adapters come by a folder, not over a group",
                subject="run.publish_adapters",
                fix='set learner.publish.way = "folder"',
            )
        if self.parent is not None or not served.continues(self.version):
            raise ServiceError(
                reasons.ERROR_REASON_INVALID_REQUEST,
                f"{self.version} opens a lineage, which begins with a folder",
                subject="version",
                fix="publish its first version by PublishWeights",
            )
        return known_shape(served)

    async def move(self, one: Publish, _served: ServedWeights) -> PublishResult:
        """Calls get a failure before the servers are in order: the learner's reaction frees
        them."""
        await self._reach()
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self.lease):
                group = await stack.enter_async_context(
                    update_group(
                        self.control,
                        name=one.id,
                        version=self.version,
                        meeting=self.meeting,
                    )
                )
            try:
                return await self._serve(one, group)
            except BaseException as error:
                one.fail(error)
                raise

    def failure(self, error: Exception) -> Exception:
        match error:
            case PublishFailed():
                return group_failure(self.version, str(error))
            case TimeoutError():
                return group_failure(self.version, f"its lease of {self.lease:.0f} s ended")
        return error

    async def _reach(self) -> None:
        """Raises ServiceError if the store does not answer: servers would wait there long."""
        address, port = self.meeting.address, self.meeting.port
        try:
            async with asyncio.timeout(STORE_SECONDS):
                _, writer = await asyncio.open_connection(address, port)
        except (OSError, TimeoutError) as error:
            raise ServiceError(
                reasons.ERROR_REASON_PUBLISH_FAILED,
                f"the learner's store does not answer at {address}:{port} "
                f"({error or 'no answer in time'})",
                subject="master_address",
                fix="give an address of the learner that engine and samplers reach",
            ) from error
        writer.close()

    async def _serve(self, one: Publish, group: UpdateGroup) -> PublishResult:
        """Passes buckets to the group until the commit. Raises TimeoutError if the lease ends."""
        joining = asyncio.ensure_future(_join(one, group))
        try:
            one.become(one.state.after(Event.OPEN, world_size=group.world_size))
            while True:
                async with asyncio.timeout(self.lease):
                    state = await one.until(
                        lambda state: state.stage in (Stage.RECEIVING, Stage.COMMITTING)
                    )
                    if state.stage is Stage.COMMITTING or state.bucket is None:
                        break
                    await asyncio.shield(joining)
                    index, tensors = state.bucket
                    await group.receive(tensors)
                    one.become(one.state.after(Event.RECEIVE, received=index + 1))
            return await group.finish()
        finally:
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)


async def _join(one: Publish, group: UpdateGroup) -> None:
    """Lets the servers join. A server that does not join fails the publish at once."""
    try:
        await group.join()
    except Exception as error:
        one.fail(error)
        raise


def known_shape(served: ServedWeights) -> PolicyShape:
    """The policy that is served. Raises ServiceError if the engine does not know it."""
    if served.shape is not None:
        return served.shape
    raise ServiceError(
        reasons.ERROR_REASON_INVALID_REQUEST,
        "the engine cannot read the folder of the policy that is served, so that it does not "
        "know which tensors make it whole",
        subject="version",
        fix="publish one version by PublishWeights",
    )


def group_failure(version: WeightVersion, why: str) -> ServiceError:
    return ServiceError(
        reasons.ERROR_REASON_PUBLISH_FAILED,
        f"{version} was not published over the group: {why}",
        subject=str(version),
        fix=FIX,
    )
