"""A session as a terminal or an agent uses it: real gRPC, and a tool that tells its call's turn."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest

from toolsvc.edge.client import Client, OpenedSession
from toolsvc.edge.service import SERVICE_NAME, ToolServicer
from toolsvc.host.host import Host
from toolsvc.plugin.tool import Tool
from toolsvc.types import Call, RawFormat
from toolwright.rpc.server import Server
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc


class Turn(Tool):
    name = "turn"
    parallel_calls = True

    def __init__(self) -> None:
        self.waiting = 0
        self.may_end = asyncio.Event()

    async def call(self, state: None, call: Call) -> str:
        if call.arguments["text"] == "wait":
            self.waiting += 1
            await self.may_end.wait()
        return str(call.turn)


class Shell(Tool):
    """Reads its own tag beside other forms, as `bash` does."""

    name = "shell"
    format = RawFormat()
    stop_strings = ("</shell>", "</tool_call>")

    def call(self, state: None, call: Call) -> str:
        return call.action


@pytest.fixture
def tool() -> Turn:
    return Turn()


@pytest.fixture
async def client(tool: Turn) -> AsyncIterator[Client]:
    address = f"unix-abstract:toolsvc-test-{secrets.token_hex(8)}"
    async with Host([tool, Shell()]) as host:
        server = Server(address)
        servicer = ToolServicer(host, "test")
        server.add(
            SERVICE_NAME, lambda s: tool_pb2_grpc.add_ToolServiceServicer_to_server(servicer, s)
        )
        await server.start()
        async with Client(address) as running:
            yield running
        await server.stop(0)


def turn(result: pb.CallResult) -> int:
    return int(result.observation[0].text)


async def turns(session: OpenedSession, *actions: str) -> list[int]:
    return [turn(await session.call("turn", action)) for action in actions]


async def test_a_turn_begins_where_all_results_have_come(client: Client, tool: Turn) -> None:
    session = await client.open((), {})
    assert await turns(session, "a", "b", "c") == [0, 1, 2]
    together = [asyncio.create_task(session.call("turn", "wait")) for _ in range(2)]
    async with asyncio.timeout(20):
        while tool.waiting < 2:  # noqa: ASYNC110 - calls in flight tell nobody
            await asyncio.sleep(0.01)
    assert await turns(session, "d") == [3]
    tool.may_end.set()
    assert [turn(await one) for one in together] == [3, 3]
    assert await turns(session, "e") == [4]


async def test_in_a_shared_session_nothing_is_acknowledged(client: Client) -> None:
    """A turn that went up by one client would have the service refuse the other's calls."""
    first = await client.open((), {}, "ours", shared=True)
    second = await client.open((), {}, "ours", shared=True)
    assert await turns(first, "a", "b") == [0, 0]
    assert await turns(second, "c") == [0]
    assert await turns(first, "d") == [0]


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("ls", "<shell>ls</shell>"),
        ("I look. <shell>ls</shell>", "I look. <shell>ls</shell>"),
        ("<tool_call>{}</tool_call>", "<tool_call>{}</tool_call>"),
    ],
)
async def test_a_body_alone_will_do(client: Client, typed: str, sent: str) -> None:
    session = await client.open(("shell",), {})
    result = await session.call("shell", typed)
    assert result.observation[0].text == sent
