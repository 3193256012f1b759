"""Requests to the engine. An outage of the engine delays them; it is no error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import grpc.aio
import structlog

from agents.outcomes import Ending, Result
from toolwright import wire
from toolwright.common.v1 import trajectory_pb2
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.ingress.v1 import ingress_pb2_grpc
from toolwright.rpc.channel import backoff, call, may_retry
from toolwright.rpc.errors import ServiceError, TransportError

TAKE_S = 20.0
"""Longest wait of one Take for a trajectory, in seconds."""
TIMEOUT_S = 60.0
"""Deadline of one request, in seconds."""

log = structlog.get_logger("agents")
Response = TypeVar("Response")


class EngineLink:
    """One worker's requests, in one of its lives. Each method raises ServiceError if the engine
    refuses."""

    def __init__(self, channel: grpc.aio.Channel, worker: str, life: str) -> None:
        self._stub = cast(
            "ingress_pb2_grpc.IngressServiceAsyncStub",
            ingress_pb2_grpc.IngressServiceStub(channel),
        )
        self._worker = worker
        self._life = life

    async def take(self, number: int, tasks: Sequence[str]) -> pb.TakeResponse:
        """A trajectory of the tasks; without a key if the engine had none in `TAKE_S`."""
        request = pb.TakeRequest(
            worker=self._worker,
            life=self._life,
            number=number,
            wait=wire.duration(TAKE_S),
            tasks=tasks,
        )
        return await _until_answered(self._stub.Take, request)

    async def hold(self, keys: Iterable[str]) -> Sequence[str]:
        """Says which trajectories have living agents. Returns the keys of those that have ended."""
        request = pb.HoldRequest(worker=self._worker, life=self._life, keys=keys)
        response: pb.HoldResponse = await _until_answered(self._stub.Hold, request)
        return response.ended

    async def report(self, key: str, result: Result) -> None:
        """Gives a trajectory's reward. key: the reward key."""
        parts = [
            trajectory_pb2.RewardPart(name=name, value=value)
            for name, value in result.parts.items()
        ]
        request = pb.ReportRequest(key=key, reward=result.reward, parts=parts)
        await _until_answered(self._stub.Report, request)

    async def ended(self, key: str, ending: Ending, answer: str | None, output: str) -> int:
        """Ends a trajectory. Returns the number of its model calls."""
        request = pb.EndedRequest(
            key=key,
            outcome=ending.outcome,  # type: ignore[arg-type]
            error=ending.error,
            answer=answer,
            needs_calls=ending.needs_calls,
            output=output,
        )
        response: pb.EndedResponse = await _until_answered(self._stub.Ended, request)
        return response.calls


async def _until_answered(method: Callable[..., Awaitable[Response]], request: Any) -> Response:
    failures = 0
    while True:
        try:
            return await call(method, request, timeout=TIMEOUT_S)
        except (ServiceError, TransportError) as error:
            if not may_retry(error):
                raise
            if failures == 1:
                log.info("engine does not answer", error=str(error))
            pause = backoff(failures, error)
        await asyncio.sleep(pause)
        failures += 1
