"""The client of the memory, over gRPC."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import grpc

from toolsvc.errors import BackendRefuses, Refused, StartError, backend_down
from toolwright import json_data
from toolwright.memory.v1 import memory_pb2 as pb
from toolwright.memory.v1 import memory_pb2_grpc
from toolwright.rpc.channel import backoff, call, may_retry, open_channel
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.text.schemas import in_order

ANSWER_S = 10.0
"""Longest wait for one answer, in seconds."""
START_S = 10.0
"""Longest wait for the memory at the service's start, in seconds."""
TRIES = 3
UNREADABLE = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)

Scoring = Literal["hybrid", "graphrag"]
_SCORINGS = {
    None: pb.SCORING_UNSPECIFIED,
    "hybrid": pb.SCORING_HYBRID,
    "graphrag": pb.SCORING_GRAPHRAG,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A tool of the memory."""

    name: str
    description: str
    returns: str
    code: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryQuestion:
    """A question to the memory. None: the memory's own setting. At most one of version,
    before_weights and iteration is given; without any of them the newest version answers."""

    queries: Sequence[str]
    question: str
    per_subtask: int | None = None
    in_all: int | None = None
    scoring: Scoring | None = None
    text_weight: float | None = None
    version: int | None = None
    before_weights: str | None = None
    iteration: str | None = None


class NotAnswered(Exception):
    """The memory refuses this question; a retry does not help."""


class MemoryClient:
    """Client of one memory. Call `start` before the first question, `close` at the end."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel: grpc.aio.Channel
        self._stub: Any

    async def start(self) -> None:
        """Raises StartError if the memory does not answer."""
        self._channel = open_channel(self.address, os.environ.get(TOKEN_VARIABLE, ""))
        self._stub = memory_pb2_grpc.MemoryServiceStub(self._channel)
        try:
            async with asyncio.timeout(START_S):
                while True:
                    try:
                        await call(self._stub.GetStatus, pb.GetStatusRequest(), timeout=START_S)
                    except TransportError as error:
                        if error.code is not grpc.StatusCode.UNAVAILABLE:
                            raise
                        await asyncio.sleep(0.2)
                    else:
                        return
        except (TimeoutError, ServiceError, TransportError) as error:
            await self.close()
            why = str(error) or f"no answer after {START_S:g} s"
            raise StartError(
                f"memory:{self.address}: {why}; start `memory serve --listen {self.address}` first"
            ) from error

    async def close(self) -> None:
        await self._channel.close()

    async def retrieve(self, asked: MemoryQuestion) -> tuple[list[Remembered], int]:
        """(tools, the best first; the version that answered). Raises Refused if the memory does not
        answer, NotAnswered if it refuses the question."""
        request = pb.RetrieveRequest(
            question=asked.question,
            subtasks=asked.queries,
            k_per_subtask=asked.per_subtask or 0,
            k_total=asked.in_all or 0,
            version=asked.version,
            before_weights=asked.before_weights,
            iteration=asked.iteration,
            scoring=_SCORINGS[asked.scoring],
            text_weight=asked.text_weight,
        )
        answer = await self._asked(request)
        return [_remembered(one.tool) for one in answer.tools], int(answer.version)

    async def _asked(self, request: pb.RetrieveRequest) -> pb.RetrieveResponse:
        for attempt in range(TRIES):
            try:
                return await call(self._stub.Retrieve, request, timeout=ANSWER_S)
            except (ServiceError, TransportError) as error:
                if error.code in UNREADABLE:
                    raise NotAnswered(str(error)) from error
                if attempt + 1 == TRIES or not may_retry(error):
                    raise self._away(error) from error
                await asyncio.sleep(backoff(attempt, error))
        raise AssertionError("unreachable")

    def _away(self, error: ServiceError | TransportError) -> Refused:
        if isinstance(error, ServiceError) and not error.passes:
            return BackendRefuses(f"the memory at {self.address} refuses: {error}")
        return backend_down(f"the memory at {self.address} does not answer: {error}")


def _remembered(node: pb.ToolNode) -> Remembered:
    return Remembered(
        name=node.name,
        description=node.description,
        returns=node.returns,
        code=node.code,
        schema=in_order(json_data.mapping(node.arguments_schema)),
    )
