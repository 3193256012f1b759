"""A client of a running engine: submits tasks, follows its events, reads evaluation trajectories.

It works beside the learner and never takes the run from it. Every request may be sent again: a task
is known by its id, events and groups by their numbers. While the engine does not answer, or has no
room, the client retries for `patience` seconds.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc.aio

from engine.errors import RequestFailed
from toolwright import wire
from toolwright.common.v1 import trajectory_pb2
from toolwright.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from toolwright.rpc.channel import call, may_retry, open_channel
from toolwright.rpc.errors import ServiceError, TransportError, from_rpc_error
from toolwright.rpc.leased_groups import BrokenGroup, GroupStream
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.rpc.retrying import Retry, Unanswered
from toolwright.types import Group, Task

Answer = TypeVar("Answer")

SHORT_S = 30.0
"""Timeout of a short call, in seconds."""
TASKS_A_REQUEST = 256
BYTES_A_REQUEST = 16 << 20
PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedEvent:
    """One event of a running engine."""

    number: int
    """Its place in the order of events. It grows over restarts of the engine."""
    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """The answer to a submission."""

    accepted: int
    """Number of tasks that were new."""
    known: int
    """Number of tasks that the engine had already."""


class RolloutClient:
    """A channel to one engine; an async context manager. Its methods raise RequestFailed."""

    def __init__(
        self,
        address: str,
        *,
        patience: float = PATIENCE_S,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """address: HOST:PORT, run.engine of the recipe. patience: longest time to retry, in
        seconds. say: reports an outage. A token comes from the environment (TOOLWRIGHT_TOKEN)."""
        self.address = address
        self._retries = Retry(
            lambda: patience,
            lambda why, _waited: say(f"waiting for the engine at {address} ({why})"),
        )

    async def __aenter__(self) -> Self:
        self._channel = open_channel(self.address, os.environ.get(TOKEN_VARIABLE, ""))
        self._stub: Any = rollout_pb2_grpc.RolloutServiceStub(self._channel)
        self._groups = GroupStream(self._channel)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._channel.close(None)

    async def submit(self, tasks: Iterable[Task]) -> Submitted:
        """Adds training tasks to a recipe with `task.source = "submitted"`. They are on the
        engine's disk when this returns.

        Each task needs an id. The same task under its id may be submitted again; another one under
        that id is refused. `Task.name` is its table in [tasks], "" for a single task.
        """
        accepted = known = 0
        for request in _requests(tasks):
            answer = await self._retry(
                lambda request=request: call(self._stub.SubmitTasks, request, timeout=SHORT_S),  # type: ignore[misc]
                "SubmitTasks",
            )
            accepted, known = accepted + answer.accepted, known + answer.known
        return Submitted(accepted=accepted, known=known)

    async def watch(self, after: int = 0) -> AsyncGenerator[WatchedEvent]:
        """Events with a higher number, then each new one, over restarts of the engine. It never
        ends by itself.

        An event `gap` counts the events that this reader lost (`lost`). It was too slow, or the
        engine was started again. after: 0 = from the oldest that the engine still has.
        """
        while True:
            request = rollout_pb2.WatchEventsRequest(after=after)
            stream, response = await self._retry(lambda: self._begin(request), "WatchEvents")  # noqa: B023
            try:
                while response is not grpc.aio.EOF:
                    after = response.sequence_number
                    data = wire.mapping(response.event.data, response.event.data_json)
                    yield WatchedEvent(number=after, kind=response.event.kind, data=data)
                    response = await stream.read()
            except grpc.aio.AioRpcError as error:
                if not may_retry(found := from_rpc_error(error)):
                    raise self._refused(found, "WatchEvents") from error
            finally:
                stream.cancel()

    async def lease_evaluated(self, *, after: int, count: int, wait: float) -> list[Group]:
        """Up to `count` evaluation trajectories after a number, each in a group of its own. Fewer
        after `wait` seconds (at most 60) without a new one.

        The recipe says how many the engine keeps (`engine.evaluation.keep`).
        """
        request = rollout_pb2.LeaseGroupsRequest(
            consumer=rollout_pb2.CONSUMER_EVAL,
            after_sequence=after,
            max_groups=count,
            wait=wire.duration(wait),
        )
        return await self._groups.lease(
            request,
            timeout=(wait + SHORT_S) * (count + 1),
            retry=lambda attempt: self._retry(attempt, "LeaseGroups"),
        )

    async def acknowledge_evaluated(self, sequence_number: int) -> None:
        """Lets the engine delete evaluation trajectories up to a number."""
        request = rollout_pb2.AckGroupsRequest(
            consumer=rollout_pb2.CONSUMER_EVAL, durable_sequence=sequence_number
        )
        await self._retry(lambda: call(self._stub.AckGroups, request, timeout=SHORT_S), "AckGroups")

    async def _begin(self, request: rollout_pb2.WatchEventsRequest) -> tuple[Any, Any]:
        """A stream and its first response. Raises AioRpcError."""
        stream = self._stub.WatchEvents(request)
        try:
            first = await stream.read()
        except BaseException:
            stream.cancel()
            raise
        if first is grpc.aio.EOF:
            raise TransportError(grpc.StatusCode.UNAVAILABLE, "the engine ended the stream")
        return stream, first

    async def _retry(self, attempt: Callable[[], Awaitable[Answer]], what: str) -> Answer:
        try:
            return await self._retries.until_called(attempt, what, worked_s=SHORT_S)
        except Unanswered as unanswered:
            raise RequestFailed(
                f"engine at {self.address} did not answer {what} for {unanswered.waited:.0f} s "
                f"({unanswered.error}): is `engine serve RECIPE` running at this address?"
            ) from unanswered
        except (ServiceError, TransportError) as error:
            raise self._refused(error, what) from error
        except BrokenGroup as error:
            raise RequestFailed(f"engine at {self.address}: {error}") from error

    def _refused(self, error: ServiceError | TransportError, what: str) -> RequestFailed:
        return RequestFailed(f"engine at {self.address} refused {what}: {error}")


def _requests(tasks: Iterable[Task]) -> Iterator[rollout_pb2.SubmitTasksRequest]:
    """The tasks in requests of bounded size, in order. Raises RequestFailed for a task that
    cannot be written."""
    batch: list[trajectory_pb2.Task] = []
    size = 0
    for task in tasks:
        try:
            message = wire.task_to_proto(task)
        except (AttributeError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise RequestFailed(f"task {task.id!r} cannot be submitted: {error}") from error
        own = message.ByteSize()
        if batch and (len(batch) == TASKS_A_REQUEST or size + own > BYTES_A_REQUEST):
            yield rollout_pb2.SubmitTasksRequest(tasks=batch)
            batch, size = [], 0
        batch.append(message)
        size += own
    if batch:
        yield rollout_pb2.SubmitTasksRequest(tasks=batch)
