"""Requests to the engine. An outage of the engine delays them; it is no error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import grpc.aio
import structlog

from agents.outcomes import Ending, Result
from toolwright import wire
from toolwright.common.v1 import trajectory_pb2
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.ingress.v1 import ingress_pb2_grpc
from toolwright.rpc.retrying import Retry

TAKE_S = 20.0
"""Longest wait of one Take for a trajectory, in seconds."""
TIMEOUT_S = 60.0
"""Deadline of one request, in seconds."""
QUIET_S = 1.0
"""Length of an outage that is not logged, in seconds."""

log = structlog.get_logger("agents")


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
        self._retry = Retry.endless(
            lambda why, waited: log.info("engine does not answer", seconds=waited, error=why),
            quiet_s=QUIET_S,
        )

    async def take(self, number: int, tasks: Sequence[str]) -> pb.TakeResponse:
        """A trajectory of the tasks; without a key if the engine had none in `TAKE_S`."""
        request = pb.TakeRequest(
            worker=self._worker,
            life=self._life,
            number=number,
            wait=wire.duration(TAKE_S),
            tasks=tasks,
        )
        return await self._retry.answer(self._stub.Take, request, timeout=TIMEOUT_S)

    async def hold(self, keys: Iterable[str]) -> Sequence[str]:
        """Says which trajectories have living agents. Returns the keys of those that have ended."""
        request = pb.HoldRequest(worker=self._worker, life=self._life, keys=keys)
        response: pb.HoldResponse = await self._retry.answer(
            self._stub.Hold, request, timeout=TIMEOUT_S
        )
        return response.ended

    async def report(self, key: str, result: Result) -> None:
        """Gives a trajectory's reward. key: the reward key."""
        parts = [
            trajectory_pb2.RewardPart(name=name, value=value)
            for name, value in result.parts.items()
        ]
        request = pb.ReportRequest(key=key, reward=result.reward, parts=parts)
        await self._retry.answer(self._stub.Report, request, timeout=TIMEOUT_S)

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
        response: pb.EndedResponse = await self._retry.answer(
            self._stub.Ended, request, timeout=TIMEOUT_S
        )
        return response.calls
