"""The learner's line to the engine: RolloutService and PolicyService, with patience.

Calls are synchronous for the caller; they run on a loop in the background, so that a lease may be
begun and waited for later, while other calls are made. An engine that is out of reach, or takes
calls and answers none, is waited for, aloud, up to `patience` seconds; what it refuses is an
EngineError. Every request may be sent again: leases start after a mark, publishes and
acknowledgements are idempotent.

A client names itself by a random word that is its process's alone. `join` gives the run to it; the
engine then refuses whoever had the run before, and this client once another one joins (TakenError).

Does not know what a step is or what groups are for.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import grpc
import grpc.aio

from learner.errors import EngineError, TakenError
from learner.intake.background import BackgroundLoop
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.common.v1 import trajectory_pb2
from toolwright.model.fingerprint import Fingerprint
from toolwright.policy.v1 import policy_pb2, policy_pb2_grpc
from toolwright.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from toolwright.rpc.channel import backoff, call, may_retry, open_channel
from toolwright.rpc.errors import ServiceError, TransportError, from_rpc_error
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.types import BlobRef, Group, WeightVersion

Answer = TypeVar("Answer")

SHORT_S = 30.0
GLANCE_S = 2.0
PUBLISH_S = 900.0
"""A publish waits for an evaluation that is under way."""
REMIND_S = 10.0
HURRIED_S = 10.0
"""The patience of who was asked to stop."""


def lease_deadline(wait: float, count: int) -> float:
    """Seconds that a lease may take: its stream restarts the wait with every group, so this only
    catches a connection that hangs."""
    return (wait + SHORT_S) * (count + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What an engine serves: its newest version, None when nothing was published yet, and what it
    was started with, None where it does not tell."""

    version: WeightVersion | None
    fingerprint: Fingerprint | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """run: the engine's own word for the run, by which traces are named; empty while it starts.
    turned_away: groups without a signal that dynamic sampling has turned away, in all lives of the
    run. fruitless: why no group will come any more, a sentence; empty while one may."""

    turned_away: int
    fruitless: str
    run: str = ""


class EngineClient:
    """A channel to one engine; a context manager.

    say: gets a line whenever something takes long. hurried: asked during a wait; where it says
    yes, an engine out of reach is not waited for longer than HURRIED_S.
    """

    def __init__(
        self,
        address: str,
        *,
        patience: float,
        say: Callable[[str], None],
        hurried: Callable[[], bool] = lambda: False,
    ) -> None:
        self.address = address
        self._patience = patience
        self._hurried = hurried
        self._say = say
        self.learner = secrets.token_hex(8)
        self._loop = BackgroundLoop("engine-client")
        self._channel = self._loop.run(self._open())
        self._rollout = rollout_pb2_grpc.RolloutServiceStub(self._channel)
        self._policy = policy_pb2_grpc.PolicyServiceStub(self._channel)

    async def _open(self) -> grpc.aio.Channel:
        return open_channel(self.address, os.environ.get(TOKEN_VARIABLE, ""))

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.run(self._channel.close(None))
        self._loop.close()

    def look(self) -> Served:
        """What the engine serves; changes nothing there."""
        return self._policy_as("")

    def join(self) -> Served:
        """The same, and the run is this learner's from now on.

        Whoever had it publishes nothing any more: what is newest in the answer stays it.
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
        """Hands a policy folder to the samplers; returns how long they stood still, seconds."""
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

    def ask_policy(self, name: str, request: Any, *, timeout: float) -> Any:
        """The answer of a PolicyService method, with the client's patience."""
        return self._until_answered(
            lambda: self.ask_policy_once(name, request, timeout=timeout), name
        )

    async def ask_policy_once(self, name: str, request: Any, *, timeout: float) -> Any:
        """The same without any patience, as a coroutine for `begin`. ServiceError or
        TransportError."""
        return await call(getattr(self._policy, name), request, timeout=timeout)

    def begin(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Begins `work` beside what else is asked, and returns at once."""
        return self._loop.start(work)

    def acknowledge(self, sequence_number: int) -> None:
        """Everything up to the number is durable here."""
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

        May return fewer, also none, after `wait` seconds without a new one or when the stream
        broke, and at once where the engine knows that none will come (`state` says why).
        EngineError for a group whose members do not fit its content hash.
        """
        return self._loop.run(self._lease(after, count, version, wait))

    def begin_lease(
        self, *, after: int, count: int, version: WeightVersion, wait: float
    ) -> Future[list[Group]]:
        """Begins such a lease; the future has what `lease` would return or raise."""
        return self._loop.start(self._lease(after, count, version, wait))

    def blob(self, ref: BlobRef) -> bytes:
        """A file that a leased trajectory refers to, until the group is acknowledged.

        EngineError where what arrives is another one.
        """
        return self._loop.run(self._blob(ref))

    def state(self) -> EngineState:
        """How the engine is."""
        return self._until_answered(lambda: self._ask(SHORT_S), "GetStatus")

    def glance(self) -> EngineState | None:
        """The same, asked once and not waited for; None where no answer comes at once."""
        try:
            return self._loop.run(self._ask(GLANCE_S))
        except (ServiceError, TransportError):
            return None

    async def _ask(self, timeout: float) -> EngineState:
        request = rollout_pb2.GetStatusRequest()
        answer = await call(self._rollout.GetStatus, request, timeout=timeout)
        told = dict(answer.detail)
        return EngineState(
            turned_away=int(told.get("turned_away_groups", 0)),
            fruitless=str(told.get("fruitless", "")),
            run=str(told.get("run", "")),
        )

    async def _lease(
        self, after: int, count: int, version: WeightVersion, wait: float
    ) -> list[Group]:
        got: list[Group] = []

        async def attempt() -> None:
            request = rollout_pb2.LeaseGroupsRequest(
                consumer=rollout_pb2.CONSUMER_TRAIN,
                after_sequence=got[-1].sequence_number if got else after,
                max_groups=count - len(got),
                version=wire.version_to_proto(version),
                wait=wire.duration(wait),
                learner=self.learner,
            )
            deadline = lease_deadline(wait, count)
            members: list[trajectory_pb2.Trajectory] = []
            try:
                async for item in self._rollout.LeaseGroups(request, timeout=deadline):
                    if item.HasField("trajectory"):
                        members.append(item.trajectory)
                    else:
                        got.append(_close_group(item.group, members))
                        members = []
            except grpc.aio.AioRpcError as error:
                raise from_rpc_error(error) from error

        await self._retry(attempt, "LeaseGroups")
        return got

    async def _blob(self, ref: BlobRef) -> bytes:
        got = bytearray()

        async def attempt() -> None:
            request = rollout_pb2.GetBlobRequest(sha256=ref.sha256, offset=len(got))
            try:
                async for piece in self._rollout.GetBlob(request, timeout=SHORT_S):
                    got.extend(piece.data)
                    if len(got) > ref.size:
                        return
            except grpc.aio.AioRpcError as error:
                raise from_rpc_error(error) from error

        await self._retry(attempt, "GetBlob")
        if len(got) != ref.size or hashlib.sha256(got).hexdigest() != ref.sha256:
            raise EngineError(
                f"engine at {self.address} sent {len(got)} bytes for {ref.sha256[:12]}, which has "
                f"{ref.size} bytes and another hash: its journal is damaged"
            )
        return bytes(got)

    def _until_answered(self, attempt: Callable[[], Awaitable[Answer]], what: str) -> Answer:
        return self._loop.run(self._retry(attempt, what))

    async def _retry(self, attempt: Callable[[], Awaitable[Answer]], what: str) -> Answer:
        failing_since = 0.0
        reminded = time.monotonic() - REMIND_S
        tries = 0
        while True:
            began = time.monotonic()
            try:
                return await attempt()
            except (ServiceError, TransportError) as error:
                # Patience is for an engine that answers nothing, not for one that worked on the
                # answer until its connection broke. Whoever lets a deadline pass may be either.
                worked = time.monotonic() - began > SHORT_S and not _is_deadline(error)
                if not tries or worked:
                    failing_since, tries = time.monotonic(), 0
                waited = time.monotonic() - failing_since
                if (
                    isinstance(error, ServiceError)
                    and error.reason == reasons.ERROR_REASON_SUPERSEDED
                ):
                    raise TakenError(f"engine at {self.address}: {error}") from error
                if not may_retry(error):
                    raise EngineError(
                        f"engine at {self.address} refused {what}: {error}"
                    ) from error
                if waited > (HURRIED_S if self._hurried() else self._patience):
                    raise EngineError(
                        f"engine at {self.address} did not answer {what} for {waited:.0f} s "
                        f"({error}): is `engine serve RECIPE` running, and is run.engine its "
                        "address?"
                    ) from error
                if time.monotonic() - reminded >= REMIND_S:
                    reminded = time.monotonic()
                    self._say(f"waiting for the engine at {self.address} ({what}: {error})")
                await asyncio.sleep(backoff(tries, error))
                tries += 1


def _is_deadline(error: ServiceError | TransportError) -> bool:
    return isinstance(error, TransportError) and error.code is grpc.StatusCode.DEADLINE_EXCEEDED


def _fingerprint(answer: policy_pb2.GetPolicyResponse) -> Fingerprint:
    found = answer.fingerprint
    try:
        terms = dict(json.loads(found.recipe or "{}"))
    except (ValueError, TypeError) as error:
        raise EngineError(
            f"what the engine tells of its recipe is no JSON object ({error}): engine and learner "
            "are not of one version"
        ) from error
    lineages = (found.lineage, *(fork.lineage for fork in answer.forks)) if found.lineage else ()
    return Fingerprint(
        terms=terms,
        tokenizer=found.tokenizer_hash,
        shape=found.shape,
        folder=found.folder,
        lineages=lineages,
    )


def _close_group(info: trajectory_pb2.GroupInfo, members: list[trajectory_pb2.Trajectory]) -> Group:
    found = wire.content_hash(wire.serialize(member) for member in members)
    if info.members != len(members) or info.content_hash != found:
        raise EngineError(
            f"group {info.id} (number {info.sequence_number}) arrived with {len(members)} members "
            f"and hash {found[:12]}, the engine announced {info.members} and "
            f"{info.content_hash[:12]}: engine and learner are not of one version"
        )
    return Group(
        id=info.id,
        trajectories=tuple(wire.trajectory_from_proto(member) for member in members),
        sequence_number=info.sequence_number,
        content_hash=info.content_hash,
    )
