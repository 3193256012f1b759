"""The small engine with samplers that take weights by a process group: real gloo ranks in threads.

Every server is one rank. `fault` is called before an RPC does its work, with a word for it (begin,
bucket, commit, folder) and the bucket's index or the version's step; it may close a server's rank,
or raise a ServiceError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from grpc_status import rpc_status

from tests.integration.learner.fake_engine import FakeEngine
from tests.integration.learner.receivers import Receiver
from toolwright import types as t
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.policy.v1 import policy_pb2 as policy
from toolwright.rpc.errors import ServiceError, to_status

MOST_S = 30.0


@dataclass(slots=True, kw_only=True)
class Open:
    """A publish that was begun; `got` has what each server received."""

    name: str
    version: t.WeightVersion
    servers: list[Receiver]
    got: list[dict[str, torch.Tensor]] = field(default_factory=list)
    joined: bool = False


class GroupEngine(FakeEngine):
    """`received`: what each server got, by version that was committed."""

    def __init__(self, *given: Any, servers: int = 2, **named: Any) -> None:
        self.servers = servers
        self.fault: Callable[[str, int], None] = lambda _rpc, _index: None
        self.begun: list[policy.BeginPublishRequest] = []
        self.buckets: list[int] = []
        """Bytes of every bucket that arrived."""
        self.aborted: list[str] = []
        self.received: dict[t.WeightVersion, list[dict[str, torch.Tensor]]] = {}
        self.open: Open | None = None
        super().__init__(*given, **named)

    def stop(self) -> None:
        super().stop()
        self._end()

    def BeginPublish(self, request, context):
        with _answered(context):
            self._heard(request)
            self.fault("begin", request.version.step)
            self._end()
            self.begun.append(request)
            name = f"publish-{len(self.begun)}"
            world_size = 1 + self.servers
            self.open = Open(
                name=name,
                version=wire.version_from_proto(request.version),
                servers=[
                    Receiver(request.master_address, request.master_port, name, rank, world_size)
                    for rank in range(1, world_size)
                ],
            )
            return policy.BeginPublishResponse(publish_id=name, world_size=world_size)

    def PublishBucket(self, request, context):
        with _answered(context):
            publish = self._of(request.publish_id)
            try:
                self.fault("bucket", request.index)
                for server in publish.servers:
                    server.joined.result(MOST_S)
                tensors = [(m.name, m.dtype, tuple(m.shape)) for m in request.tensors]
                arriving = [server.receive(tensors) for server in publish.servers]
                parts = [each.result(MOST_S) for each in arriving]
            except (RuntimeError, OSError) as error:
                self._end()
                raise failed(f"a server broke: {error}") from error
            publish.got = publish.got or [{} for _ in parts]
            for got, part in zip(publish.got, parts, strict=True):
                assert not got.keys() & part.keys()
                got.update(part)
            self.buckets.append(sum(tensor.nbytes for tensor in parts[0].values()))
            return policy.PublishBucketResponse()

    def CommitPublish(self, request, context):
        with _answered(context):
            publish = self._of(request.publish_id)
            self.fault("commit", publish.version.step)
            self.received[publish.version] = publish.got
            with self._lock:
                self.version = publish.version
                self.published.append((publish.version, None))
            self._end()
            return policy.CommitPublishResponse(
                version=wire.version_to_proto(publish.version), paused=wire.duration(0.25)
            )

    def PublishWeights(self, request, context):
        with _answered(context):
            self.fault("folder", request.version.step)
            return super().PublishWeights(request, context)

    def AbortPublish(self, request, context):
        self.aborted.append(request.publish_id)
        if self.open is not None and self.open.name == request.publish_id:
            self._end()
        return policy.AbortPublishResponse()

    def _of(self, name: str) -> Open:
        if self.open is None or self.open.name != name:
            raise ServiceError(reasons.ERROR_REASON_INVALID_REQUEST, f"{name} is not open")
        return self.open

    def _end(self) -> None:
        publish, self.open = self.open, None
        for server in publish.servers if publish is not None else ():
            server.close()


def failed(why: str) -> ServiceError:
    return ServiceError(reasons.ERROR_REASON_PUBLISH_FAILED, why)


class _answered:
    """A ServiceError in the block is the RPC's status."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, ServiceError):
            self._context.abort_with_status(rpc_status.to_status(to_status(error)))
