"""The learner's client of the engine: RolloutService and PolicyService, with retries.

Calls are synchronous for the caller. They run on a background loop. So a lease can start early and
be awaited later, while other calls run. If the engine does not answer, the client retries up to
`patience` seconds and reports it. A refusal is an EngineError. Every request may be sent again:
leases start after a mark, publishes and acknowledgements are idempotent.

A client has a random name, unique to its process. `join` gives the run to it; the engine then
refuses the learner that had the run before, and this client once another one joins (TakenError).

Does not know what a step is or what groups are for.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import grpc.aio

from learner.errors import EngineError, TakenError
from learner.intake.background import BackgroundLoop
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.model.fingerprint import Fingerprint
from toolwright.policy.v1 import policy_pb2, policy_pb2_grpc
from toolwright.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from toolwright.rpc.channel import call, open_channel
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.rpc.leased_groups import BrokenGroup, GroupStream
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.rpc.retrying import Retry, Unanswered
from toolwright.types import BlobRef, Group, WeightVersion

Answer = TypeVar("Answer")

SHORT_S = 30.0
GLANCE_S = 2.0
PUBLISH_S = 900.0
"""Timeout of a publish, which waits for a running evaluation."""
STOPPING_S = 10.0
"""Longest time to wait for an unreachable engine after a stop request, in seconds."""


def lease_deadline(wait: float, count: int) -> float:
    """Timeout of a lease, in seconds.

    The stream restarts the wait with every group, so this only catches a connection that hangs.
    """
    return (wait + SHORT_S) * (count + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The policy that an engine serves."""

    version: WeightVersion | None
    """Newest version; None if nothing was published yet."""
    fingerprint: Fingerprint | None
    """Recipe, tokenizer and policy of the engine; None if it does not report them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """Status of an engine."""

    turned_away: int
    """Groups without a signal that dynamic sampling has discarded, in all lives of the run."""
    fruitless: str
    """Why no more groups will come, a sentence; empty while they may."""
    run: str = ""
    """The engine's id of the run, which names its traces; empty while the engine starts."""


class EngineClient:
    """A channel to one engine; a context manager.

    patience: longest time to retry, in seconds. say: reports a long wait. stopping: whether the
    process has a stop request; then the client retries for at most STOPPING_S.
    """

    def __init__(
        self,
        address: str,
        *,
        patience: float,
        say: Callable[[str], None],
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.address = address
        self._retries = Retry(
            lambda: STOPPING_S if stopping() else patience,
            lambda why, _waited: say(f"waiting for the engine at {address} ({why})"),
        )
        self.learner = secrets.token_hex(8)
        self._loop = BackgroundLoop("engine-client")
        self._channel = self._loop.run(self._open())
        self._rollout = rollout_pb2_grpc.RolloutServiceStub(self._channel)
        self._policy = policy_pb2_grpc.PolicyServiceStub(self._channel)
        self._groups = GroupStream(self._channel)

    async def _open(self) -> grpc.aio.Channel:
        return open_channel(self.address, os.environ.get(TOKEN_VARIABLE, ""))

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.run(self._channel.close(None))
        self._loop.close()

    def served(self) -> Served:
        """The policy that the engine serves. Does not change the engine."""
        return self._policy_as("")

    def join(self) -> Served:
        """Like `served`, and gives the run to this learner.

        The learner that had the run cannot publish any more, so the newest version stays as in the
        answer.
        """
        return self._policy_as(self.learner)

    def _policy_as(self, learner: str) -> Served:
        request = policy_pb2.GetPolicyRequest(learner=learner)
        answer = self._until_answered(
            lambda: call(self._policy.GetPolicy, request, timeout=SHORT_S), "GetPolicy"
        )
        published = answer.HasField("version") and answer.version.lineage
        return Served(
            version=wire.version_from_proto(answer.version) if published else None,
            fingerprint=_fingerprint(answer) if answer.HasField("fingerprint") else None,
        )

    def publish(self, version: WeightVersion, parent: WeightVersion | None, path: str) -> float:
        """Hands a policy folder to the samplers. Returns the length of their pause, in seconds."""
        request = policy_pb2.PublishWeightsRequest(
            version=wire.version_to_proto(version),
            train_step=version.step,
            path=path,
            parent=wire.version_to_proto(parent) if parent is not None else None,
            learner=self.learner,
        )
        answer = self._until_answered(
            lambda: call(self._policy.PublishWeights, request, timeout=PUBLISH_S),
            f"PublishWeights {version}",
        )
        return float(answer.paused.ToTimedelta().total_seconds())

    def release_memory(self) -> None:
        """Has the samplers release the memory of the GPU that they share with this learner. Their
        running evaluation comes first."""
        request = policy_pb2.ReleaseMemoryRequest(learner=self.learner)
        self.call_policy("ReleaseMemory", request, timeout=PUBLISH_S)

    def resume_memory(self) -> None:
        """Has the samplers take their memory again, without a publish."""
        request = policy_pb2.ResumeMemoryRequest(learner=self.learner)
        self.call_policy("ResumeMemory", request, timeout=PUBLISH_S)

    def resume_memory_now(self) -> bool:
        """`resume_memory` by one short call; False if it did not succeed."""
        request = policy_pb2.ResumeMemoryRequest(learner=self.learner)
        try:
            self._loop.run(self.call_policy_once("ResumeMemory", request, timeout=SHORT_S))
        except (ServiceError, TransportError):
            return False
        return True

    def call_policy(self, name: str, request: Any, *, timeout: float) -> Any:
        """Calls a PolicyService method with retries."""
        return self._until_answered(
            lambda: self.call_policy_once(name, request, timeout=timeout), name
        )

    async def call_policy_once(self, name: str, request: Any, *, timeout: float) -> Any:
        """Calls a PolicyService method once, as a coroutine for `begin`.

        Raises ServiceError or TransportError.
        """
        return await call(getattr(self._policy, name), request, timeout=timeout)

    def begin(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Begins `work` beside other calls, and returns at once."""
        return self._loop.start(work)

    def acknowledge(self, sequence_number: int) -> None:
        """Reports that everything up to the number is durable here."""
        request = rollout_pb2.AckGroupsRequest(
            consumer=rollout_pb2.CONSUMER_TRAIN,
            durable_sequence=sequence_number,
            learner=self.learner,
        )
        self._until_answered(
            lambda: call(self._rollout.AckGroups, request, timeout=SHORT_S), "AckGroups"
        )

    def lease(self, *, after: int, count: int, version: WeightVersion, wait: float) -> list[Group]:
        """Up to `count` whole groups after a mark, in delivery order.

        Returns fewer, or an empty list, after `wait` seconds without a new group or after a broken
        stream. Returns at once if the engine knows that no group will come (`state` says why).
        Raises EngineError if a group's members do not match its content hash.
        """
        return self._loop.run(self._lease(after, count, version, wait))

    def begin_lease(
        self, *, after: int, count: int, version: WeightVersion, wait: float
    ) -> Future[list[Group]]:
        """Begins such a lease. The future has the result of `lease`."""
        return self._loop.start(self._lease(after, count, version, wait))

    def blob(self, ref: BlobRef) -> bytes:
        """A file that a leased trajectory refers to, until the group is acknowledged.

        Raises EngineError if other bytes arrive.
        """
        return self._loop.run(self._blob(ref))

    def state(self) -> EngineState:
        """The engine's status, with retries."""
        return self._until_answered(lambda: self._ask(SHORT_S), "GetStatus")

    def state_now(self) -> EngineState | None:
        """The engine's status from one short call; None if there is no answer at once."""
        try:
            return self._loop.run(self._ask(GLANCE_S))
        except (ServiceError, TransportError):
            return None

    async def _ask(self, timeout: float) -> EngineState:
        request = rollout_pb2.GetStatusRequest()
        answer = await call(self._rollout.GetStatus, request, timeout=timeout)
        detail = dict(answer.detail)
        return EngineState(
            turned_away=int(detail.get("turned_away_groups", 0)),
            fruitless=str(detail.get("fruitless", "")),
            run=str(detail.get("run", "")),
        )

    async def _lease(
        self, after: int, count: int, version: WeightVersion, wait: float
    ) -> list[Group]:
        request = rollout_pb2.LeaseGroupsRequest(
            consumer=rollout_pb2.CONSUMER_TRAIN,
            after_sequence=after,
            max_groups=count,
            version=wire.version_to_proto(version),
            wait=wire.duration(wait),
            learner=self.learner,
        )
        return await self._groups.lease(
            request,
            timeout=lease_deadline(wait, count),
            retry=lambda attempt: self._retry(attempt, "LeaseGroups"),
        )

    async def _blob(self, ref: BlobRef) -> bytes:
        got = bytearray()

        async def attempt() -> None:
            request = rollout_pb2.GetBlobRequest(sha256=ref.sha256, offset=len(got))
            async for piece in self._rollout.GetBlob(request, timeout=SHORT_S):
                got.extend(piece.data)
                if len(got) > ref.size:
                    return

        await self._retry(attempt, "GetBlob")
        if len(got) != ref.size or hashlib.sha256(got).hexdigest() != ref.sha256:
            raise EngineError(
                f"engine at {self.address} sent {len(got)} bytes for {ref.sha256[:12]}, which has "
                f"{ref.size} bytes and another hash: its journal is damaged, restore it"
            )
        return bytes(got)

    def _until_answered(self, attempt: Callable[[], Awaitable[Answer]], what: str) -> Answer:
        return self._loop.run(self._retry(attempt, what))

    async def _retry(self, attempt: Callable[[], Awaitable[Answer]], what: str) -> Answer:
        try:
            return await self._retries.until_called(attempt, what, worked_s=SHORT_S)
        except Unanswered as last:
            raise EngineError(
                f"engine at {self.address} did not answer {what} for {last.waited:.0f} s "
                f"({last.error}): is `engine serve RECIPE` running, and is run.engine its address?"
            ) from last.error
        except (ServiceError, TransportError) as error:
            if isinstance(error, ServiceError) and error.reason == reasons.ERROR_REASON_SUPERSEDED:
                raise TakenError(f"engine at {self.address}: {error}") from error
            raise EngineError(f"engine at {self.address} refused {what}: {error}") from error
        except BrokenGroup as error:
            raise EngineError(f"{error}: run engine and learner of one version") from error


def _fingerprint(answer: policy_pb2.GetPolicyResponse) -> Fingerprint:
    found = answer.fingerprint
    try:
        terms = dict(json.loads(found.recipe or "{}"))
    except (ValueError, TypeError) as error:
        raise EngineError(
            f"the engine's report of its recipe is not a JSON object ({error}): run engine and "
            "learner of one version"
        ) from error
    lineages = (found.lineage, *(fork.lineage for fork in answer.forks)) if found.lineage else ()
    return Fingerprint(
        terms=terms,
        tokenizer=found.tokenizer_hash,
        shape=found.shape,
        folder=found.folder,
        lineages=lineages,
    )
