"""What a memory's errors become for whoever asks its tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.hosts import refused
from toolsvc.errors import Reason
from toolsvc.sources.memory.client import TRIES, MemoryClient, MemoryQuestion, NotAnswered
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.memory.v1 import memory_pb2 as pb
from toolwright.memory.v1 import memory_pb2_grpc
from toolwright.rpc.auth import Tokens
from toolwright.rpc.errors import ServiceError, answers_errors
from toolwright.rpc.server import Server

NAME = pb.DESCRIPTOR.services_by_name["MemoryService"].full_name
QUESTION = MemoryQuestion(queries=["a square"], question="What is 7 squared?")


class Faulty(memory_pb2_grpc.MemoryServiceServicer):
    """Retrieve raises `error`; the rest is in order."""

    def __init__(self, error: ServiceError) -> None:
        self.error = error
        self.asked = 0

    @answers_errors
    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        return pb.GetStatusResponse()

    @answers_errors
    async def Retrieve(self, request: pb.RetrieveRequest, context: Any) -> pb.RetrieveResponse:
        self.asked += 1
        raise self.error


@asynccontextmanager
async def asking(error: ServiceError) -> AsyncIterator[tuple[Faulty, MemoryClient]]:
    service = Faulty(error)  # type: ignore[abstract]
    server = Server("127.0.0.1:0", tokens=Tokens(""))
    server.add(NAME, lambda s: memory_pb2_grpc.add_MemoryServiceServicer_to_server(service, s))
    await server.start()
    client = MemoryClient(f"127.0.0.1:{server.port}")
    try:
        await client.start()
        yield service, client
    finally:
        await client.close()
        await server.stop(0)


async def test_what_refuses_is_asked_once_and_invites_nobody_to_come_again() -> None:
    fault = ServiceError(reasons.ERROR_REASON_INTERNAL, "KeyError: 'x'")
    async with asking(fault) as (service, client):
        with refused(Reason.BACKEND_DOWN) as caught:
            await client.retrieve(QUESTION)
    assert service.asked == 1
    assert caught.value.retry_after is None
    assert "refuses: INTERNAL: KeyError" in caught.value.message


async def test_what_passes_is_asked_again_and_then_comes_again_later() -> None:
    fault = ServiceError(reasons.ERROR_REASON_BACKEND_DOWN, "no database", retry_after=0.01)
    async with asking(fault) as (service, client):
        with refused(Reason.BACKEND_DOWN) as caught:
            await client.retrieve(QUESTION)
    assert service.asked == TRIES
    assert caught.value.retry_after is not None
    assert "does not answer: BACKEND_DOWN: no database" in caught.value.message


async def test_a_question_that_it_does_not_take_is_told_apart() -> None:
    fault = ServiceError(reasons.ERROR_REASON_INVALID_REQUEST, "too long")
    async with asking(fault) as (_, client):
        with pytest.raises(NotAnswered, match="too long"):
            await client.retrieve(QUESTION)
