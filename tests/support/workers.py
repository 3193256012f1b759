"""Clients of a service of several processes, and the tool that it serves."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc

from toolwright.rpc.channel import backoff, may_retry, open_channel
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

NOTES = str(Path(__file__).parent / "plugins" / "notes.py")


class Client:
    """One connection; endpoints of sessions are left to the test."""

    def __init__(self, address: str, **how: Any) -> None:
        self.address = address
        self.channel = open_channel(address, **how)
        self.stub: Any = tool_pb2_grpc.ToolServiceStub(self.channel)

    async def open(self, session: str, **fields: Any) -> str:
        """The endpoint that holds it."""
        request = pb.OpenSessionRequest(session_id=session, **{"owner": "tests", **fields})
        opened = await rpc(self.stub.OpenSession, request, timeout=30)
        return str(opened.endpoint)

    async def say(self, session: str, text: str, call_id: str = "") -> str:
        request = pb.CallToolRequest(
            session_id=session,
            call_id=call_id or uuid.uuid4().hex,
            action=f"<notes>{text}</notes>",
        )
        answer = await rpc(self.stub.CallTool, request, timeout=30)
        return str(answer.result.observation[0].text)

    async def health(self) -> int:
        stub: Any = health_pb2_grpc.HealthStub(self.channel)
        answer = await rpc(stub.Check, health_pb2.HealthCheckRequest(), timeout=20)
        return int(answer.status)

    async def begins(self, session: str, text: str, call_id: str) -> bool:
        """Whether it is running and not answered yet."""
        request = pb.CallToolRequest(
            session_id=session, call_id=call_id, action=f"<notes>{text}</notes>", wait=Duration()
        )
        return bool((await rpc(self.stub.CallTool, request, timeout=30)).HasField("running"))

    async def cancel(self, session: str, call_id: str) -> bool:
        request = pb.CancelCallRequest(session_id=session, call_id=call_id)
        return bool((await rpc(self.stub.CancelCall, request, timeout=30)).cancelled)

    async def close(self, session: str) -> bool:
        request = pb.CloseSessionRequest(session_id=session)
        return bool((await rpc(self.stub.CloseSession, request, timeout=30)).closed)

    async def renew(self, owner: str, *believed: str) -> tuple[set[str], set[str]]:
        """Held and lost."""
        request = pb.RenewLeasesRequest(
            owner=owner, session_ids=believed, lease=Duration(seconds=60)
        )
        answer = await rpc(self.stub.RenewLeases, request, timeout=30)
        return set(answer.held), set(answer.lost)


@asynccontextmanager
async def connected(address: str, **how: Any) -> AsyncIterator[Client]:
    client = Client(address, **how)
    try:
        yield client
    finally:
        await client.channel.close()


def fresh() -> str:
    return f"s-{uuid.uuid4().hex}"


async def one_at_each(client: Client, **fields: Any) -> dict[str, str]:
    """A session on every one of two workers: session by endpoint."""
    at: dict[str, list[str]] = {}
    while len(at) < 2:  # the worker with the fewest gets the next, so none is closed before
        session = fresh()
        at.setdefault(await client.open(session, **fields), []).append(session)
    for sessions in at.values():
        for spare in sessions[1:]:
            await client.close(spare)
    return {endpoint: sessions[0] for endpoint, sessions in at.items()}


def refusal(failure: pytest.ExceptionInfo[ServiceError]) -> str:
    return failure.value.reason_name


async def eventually(ask: Callable[[], Awaitable[Any]]) -> Any:
    """What a client does where nobody is there, or an error says when to come again."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await ask()
            except (ServiceError, TransportError) as error:
                if not may_retry(error):
                    raise
                await asyncio.sleep(backoff(0, error))
