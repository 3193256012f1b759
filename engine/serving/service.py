"""The engine's gRPC edge: RolloutService and PolicyService. Protobuf in, our types inside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.wrappers_pb2 import BytesValue

from engine.core.sampler.update_group import Rendezvous, TensorSpec
from engine.serving.admission.submitted import Submissions
from engine.serving.delivery.claims import Claims
from engine.serving.delivery.delivery import Delivery
from engine.serving.delivery.evaluated import EvaluationDelivery
from engine.serving.journal.journal import Journal, StoredGroup
from engine.serving.publish.broadcast_publish import BroadcastPublishes
from engine.serving.publish.publishing import Publisher
from engine.serving.telemetry.event_feed import EventFeed
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.common.v1 import trajectory_pb2
from toolwright.model.fingerprint import Fingerprint, canonical_terms, recipe_hash
from toolwright.policy.v1 import policy_pb2 as policy
from toolwright.policy.v1 import policy_pb2_grpc
from toolwright.rollout.v1 import rollout_pb2 as rollout
from toolwright.rollout.v1 import rollout_pb2_grpc
from toolwright.rpc.errors import ServiceError, abort, answers_errors
from toolwright.rpc.options import PIECE_BYTES
from toolwright.types import WeightVersion

LONGEST_DRAIN_WAIT = 60.0
"""Longest wait of a Drain for trajectories in flight, in seconds; the caller may repeat it."""
LONGEST_LEASE_WAIT = 60.0
"""Longest wait of a lease for the next group, in seconds; the consumer repeats it."""
SHORTEST_LEASE, DEFAULT_LEASE, LONGEST_LEASE = 1.0, 60.0, 600.0
"""Lease of a publish over a group: longest time without progress, in seconds."""

Context = Any
"""grpc.aio.ServicerContext; the library is untyped."""


class RolloutServicer(rollout_pb2_grpc.RolloutServiceServicer):
    """Tasks in, groups to the learner."""

    def __init__(
        self,
        delivery: Delivery,
        evaluated: EvaluationDelivery,
        journal: Journal,
        claims: Claims,
        submissions: Submissions,
        feed: EventFeed,
        status: Callable[[], rollout.GetStatusResponse],
        drain: Callable[[float], Awaitable[int]],
    ) -> None:
        self._delivery = delivery
        self._evaluated = evaluated
        self._journal = journal
        self._claims = claims
        self._submissions = submissions
        self._feed = feed
        self._status = status
        self._drain = drain

    async def LeaseGroups(
        self, request: rollout.LeaseGroupsRequest, context: Context
    ) -> AsyncIterator[Any]:
        try:
            async for group in self._leased(request):
                for member in group.members:
                    # On the wire a LeaseGroupsResponse with this trajectory, without parsing it.
                    yield BytesValue(value=member)
                yield rollout.LeaseGroupsResponse(
                    group=trajectory_pb2.GroupInfo(
                        id=group.id,
                        sequence_number=group.sequence,
                        content_hash=group.hash,
                        members=len(group.members),
                    )
                )
        except ServiceError as error:
            await abort(context, error)

    async def GetBlob(
        self, request: rollout.GetBlobRequest, context: Context
    ) -> AsyncIterator[rollout.GetBlobResponse]:
        data = await self._journal.blob(request.sha256)
        if data is None:
            error = ServiceError(
                reasons.ERROR_REASON_BLOB_NOT_FOUND,
                f"no group that is held here refers to blob {request.sha256}",
                subject=request.sha256,
                fix="fetch the blobs of a group before it is acknowledged",
            )
            await abort(context, error)
        else:
            for at in range(request.offset, len(data), PIECE_BYTES):
                yield rollout.GetBlobResponse(data=data[at : at + PIECE_BYTES])

    @answers_errors
    async def AckGroups(
        self, request: rollout.AckGroupsRequest, context: Context
    ) -> rollout.AckGroupsResponse:
        if _consumer(request) == rollout.CONSUMER_EVAL:
            mark = await self._evaluated.acknowledge(request.durable_sequence)
        else:
            self._claims.check(request.learner)
            mark = await self._delivery.acknowledge(request.durable_sequence)
        return rollout.AckGroupsResponse(durable_sequence=mark)

    @answers_errors
    async def GetStatus(
        self, request: rollout.GetStatusRequest, context: Context
    ) -> rollout.GetStatusResponse:
        return self._status()

    @answers_errors
    async def Drain(self, request: rollout.DrainRequest, context: Context) -> rollout.DrainResponse:
        deadline = request.deadline.ToTimedelta().total_seconds()
        unfinished = await self._drain(min(deadline, LONGEST_DRAIN_WAIT))
        return rollout.DrainResponse(unfinished=unfinished)

    @answers_errors
    async def SubmitTasks(
        self, request: rollout.SubmitTasksRequest, context: Context
    ) -> rollout.SubmitTasksResponse:
        new = await self._submissions.submit(request.tasks)
        return rollout.SubmitTasksResponse(accepted=new, known=len(request.tasks) - new)

    async def WatchEvents(
        self, request: rollout.WatchEventsRequest, context: Context
    ) -> AsyncIterator[rollout.WatchEventsResponse]:
        try:
            async with aclosing(self._feed.follow(request.after)) as events:
                async for one in events:
                    event = trajectory_pb2.Event(kind=one.kind, data=wire.struct(one.data))
                    yield rollout.WatchEventsResponse(sequence_number=one.number, event=event)
        except ServiceError as error:
            await abort(context, error)

    async def _leased(self, request: rollout.LeaseGroupsRequest) -> AsyncIterator[StoredGroup]:
        wait = request.wait.ToTimedelta().total_seconds() or LONGEST_LEASE_WAIT
        after, limit = request.after_sequence, request.max_groups
        wait = min(wait, LONGEST_LEASE_WAIT)
        if _consumer(request) == rollout.CONSUMER_EVAL:
            async for group in self._evaluated.lease(after=after, limit=limit, wait=wait):
                yield group
            return
        self._claims.check(request.learner)
        version = wire.version_from_proto(request.version)
        async for group in self._delivery.lease(
            after=after, limit=limit, version=version, wait=wait
        ):
            self._claims.check(request.learner)
            yield group


class PolicyServicer(policy_pb2_grpc.PolicyServiceServicer):
    """New weights from the learner, by a folder or over a distributed group."""

    def __init__(
        self,
        publisher: Publisher,
        broadcasts: BroadcastPublishes,
        journal: Journal,
        claims: Claims,
        fingerprint: Fingerprint,
        *,
        shares_gpu: bool,
    ) -> None:
        """shares_gpu: the learner trains on the samplers' GPU."""
        self._shares_gpu = shares_gpu
        self._publisher = publisher
        self._broadcasts = broadcasts
        self._journal = journal
        self._claims = claims
        self._fingerprint = fingerprint

    @answers_errors
    async def PublishWeights(
        self, request: policy.PublishWeightsRequest, context: Context
    ) -> policy.PublishWeightsResponse:
        version, parent = wire.version_from_proto(request.version), _parent(request)
        self._claims.check(request.learner)
        await self._broadcasts.yield_to_folder(version)
        published = await self._publisher.publish(
            version, Path(request.path), parent, learner=request.learner
        )
        return policy.PublishWeightsResponse(
            version=request.version,
            paused=_nanoseconds(published.paused_s),
            samplers=published.samplers,
        )

    @answers_errors
    async def GetPolicy(
        self, request: policy.GetPolicyRequest, context: Context
    ) -> policy.GetPolicyResponse:
        served = self._publisher.served  # before a claim, which an engine that starts refuses
        if request.learner:
            await self._claims.take(request.learner)
            await self._broadcasts.end_others(request.learner)
            await self._publisher.settled()  # the learner before may have died during a publish
            served = self._publisher.served
        forks = await self._journal.forks()
        known = self._fingerprint
        newest, (in_folder, path) = served.newest, served.folder
        return policy.GetPolicyResponse(
            version=wire.version_to_proto(newest),
            path=str(path),
            path_version=wire.version_to_proto(in_folder) if in_folder != newest else None,
            tokenizer_hash=known.tokenizer,
            forks=[
                policy.LineageFork(lineage=name, parent=wire.version_to_proto(parent))
                for name, parent in forks.items()
            ],
            fingerprint=policy.Fingerprint(
                recipe_hash=recipe_hash(known.terms),
                tokenizer_hash=known.tokenizer,
                shape=known.shape,
                group_size=known.terms["run.group_size"],
                folder=known.folder,
                lineage=await self._journal.first_lineage(),
                recipe=canonical_terms(known.terms),
            ),
        )

    @answers_errors
    async def ReleaseMemory(
        self, request: policy.ReleaseMemoryRequest, context: Context
    ) -> policy.ReleaseMemoryResponse:
        if not self._shares_gpu:
            raise ServiceError(
                reasons.ERROR_REASON_INVALID_REQUEST,
                "this engine's recipe gives no memory of its samplers away",
                subject="run.share_gpu",
                fix="start engine and learner with run.share_gpu = true",
            )
        self._claims.check(request.learner)
        samplers = await self._publisher.release_memory(request.learner)
        return policy.ReleaseMemoryResponse(
            samplers=samplers, memory_share=self._publisher.memory_share
        )

    @answers_errors
    async def ResumeMemory(
        self, request: policy.ResumeMemoryRequest, context: Context
    ) -> policy.ResumeMemoryResponse:
        self._claims.check(request.learner)
        samplers = await self._publisher.resume_memory(request.learner)
        return policy.ResumeMemoryResponse(samplers=samplers)

    @answers_errors
    async def BeginPublish(
        self, request: policy.BeginPublishRequest, context: Context
    ) -> policy.BeginPublishResponse:
        lease = wire.seconds(request.lease) if request.HasField("lease") else DEFAULT_LEASE
        publish_id, world_size = await self._broadcasts.begin(
            wire.version_from_proto(request.version),
            _parent(request),
            meeting=Rendezvous(
                address=request.master_address,
                port=request.master_port,
                backend=request.backend,
            ),
            lease=min(max(lease, SHORTEST_LEASE), LONGEST_LEASE),
            learner=request.learner,
        )
        return policy.BeginPublishResponse(publish_id=publish_id, world_size=world_size)

    @answers_errors
    async def PublishBucket(
        self, request: policy.PublishBucketRequest, context: Context
    ) -> policy.PublishBucketResponse:
        tensors = tuple(
            TensorSpec(name=tensor.name, dtype=tensor.dtype, shape=tuple(tensor.shape))
            for tensor in request.tensors
        )
        await self._broadcasts.receive(request.publish_id, request.index, tensors)
        return policy.PublishBucketResponse()

    @answers_errors
    async def CommitPublish(
        self, request: policy.CommitPublishRequest, context: Context
    ) -> policy.CommitPublishResponse:
        version, published = await self._broadcasts.commit(request.publish_id)
        return policy.CommitPublishResponse(
            version=wire.version_to_proto(version),
            paused=_nanoseconds(published.paused_s),
            samplers=published.samplers,
        )

    @answers_errors
    async def AbortPublish(
        self, request: policy.AbortPublishRequest, context: Context
    ) -> policy.AbortPublishResponse:
        await self._broadcasts.abort(request.publish_id)
        return policy.AbortPublishResponse()


def _consumer(request: rollout.LeaseGroupsRequest | rollout.AckGroupsRequest) -> int:
    """The lane that a request names. Raises ServiceError if it names none."""
    if request.consumer not in (rollout.CONSUMER_TRAIN, rollout.CONSUMER_EVAL):
        raise ServiceError(
            reasons.ERROR_REASON_INVALID_REQUEST,
            "consumer is neither CONSUMER_TRAIN nor CONSUMER_EVAL",
            subject="consumer",
        )
    return request.consumer


def _parent(
    request: policy.PublishWeightsRequest | policy.BeginPublishRequest,
) -> WeightVersion | None:
    return wire.version_from_proto(request.parent) if request.HasField("parent") else None


def _nanoseconds(seconds: float) -> Duration:
    found = Duration()
    found.FromNanoseconds(int(seconds * 1e9))
    return found
