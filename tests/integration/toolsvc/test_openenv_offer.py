"""`toolsvc openenv` over real sockets: what closed and idle episodes leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientWebSocketResponse
from aiohttp.test_utils import TestClient, TestServer

from tests.support.hosts import Counter
from tests.support.served_host import served
from tests.support.waiting import until
from toolsvc.edge.client import Client
from toolsvc.host.host import Host
from toolsvc.sources.openenv import offer
from toolsvc.sources.openenv.offer import EpisodeOffer
from toolsvc.sources.openenv.serving import OpenEnvRoutes

pytestmark = [pytest.mark.quick, pytest.mark.asyncio]


@dataclass
class Served:
    """The server, and the host behind it."""

    http: TestClient[Any, Any]
    host: Host
    tool: Counter

    async def rpc(self, method: str, **params: Any) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with self.http.post("/mcp", json=message) as answer:
            found: dict[str, Any] = await answer.json()
        return found

    async def no_session(self) -> None:
        """Waits until the host holds no session: a connection ends after its client does."""
        await until(lambda: not self.host.session_ids, "the end of all sessions")


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Served]:
    tool = Counter()
    async with Host([tool]) as host, served(host) as address, Client(address) as client:
        episodes = EpisodeOffer(client, (await client.list_tools()).tools)
        async with TestClient(TestServer(OpenEnvRoutes(episodes, "test").app())) as http:
            yield Served(http, host, tool)
        await episodes.close()


def count(seconds: float = 0) -> dict[str, Any]:
    return {"type": "step", "data": {"tool_name": "counter", "arguments": {"text": str(seconds)}}}


async def said(socket: ClientWebSocketResponse, message: dict[str, Any]) -> dict[str, Any]:
    await socket.send_json(message)
    found: dict[str, Any] = await socket.receive_json(timeout=20)
    return found


def refusal(answer: dict[str, Any]) -> str:
    assert answer["type"] == "error", answer
    return str(answer["data"]["message"])


async def test_a_connection_that_closes_its_episode_opens_no_other(server: Served) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/close", "params": {}}
    create = {**request, "method": "openenv/session/create"}
    async with server.http.ws_connect("/ws") as socket:
        assert (await said(socket, count()))["type"] == "observation"
        assert len(server.host.session_ids) == 1
        closed = await said(socket, {"type": "mcp", "data": request})
        assert closed["data"]["result"]["closed"] is True
        for message in (count(), {"type": "reset", "data": {}}):
            assert "was closed" in refusal(await said(socket, message))
        dead = await said(socket, {"type": "mcp", "data": create})
        assert "was closed" in dead["data"]["error"]["message"]
    assert server.host.session_ids == []


async def test_a_step_that_waits_while_its_episode_closes_is_refused(server: Served) -> None:
    name = (await server.rpc("openenv/session/create"))["result"]["session_id"]
    async with server.http.ws_connect(f"/ws?session_id={name}") as socket:
        arguments = {"text": "0.5"}
        running = asyncio.create_task(
            server.rpc("tools/call", session_id=name, name="counter", arguments=arguments)
        )
        await server.tool.runs.wait()
        closing = asyncio.create_task(server.rpc("openenv/session/close", session_id=name))
        async with asyncio.timeout(20):
            while "result" in await server.rpc("tools/list", session_id=name):
                pass
        assert "was closed" in refusal(await said(socket, count()))
        assert (await running)["result"]["is_error"] is False
        assert (await closing)["result"]["closed"] is True
    await server.no_session()
    assert len(server.tool.opened) == 1


async def test_the_next_open_ends_idle_episodes(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = "openenv/session/create"
    idle = (await server.rpc(create))["result"]["session_id"]
    await server.rpc("tools/call", session_id=idle, name="counter", arguments={"text": ""})
    async with server.http.ws_connect("/ws") as socket:
        await said(socket, count())
        assert len(server.host.session_ids) == 2
        monkeypatch.setattr(offer, "IDLE_SECONDS", 0.0)
        await server.rpc(create)
        assert len(server.host.session_ids) == 1, "the socket's own stays"
        gone = await server.rpc("tools/list", session_id=idle)
        assert gone["error"]["message"] == f"no session {idle!r}"


@pytest.mark.parametrize("data", [{"a": "\ud800"}, {"\udfff": 1}, {"a": [float("nan")]}])
async def test_a_reset_that_no_metadata_can_hold_keeps_the_connection(
    server: Served, data: dict[str, Any]
) -> None:
    async with server.http.ws_connect("/ws") as socket:
        refusal(await said(socket, {"type": "reset", "data": data}))
        assert (await said(socket, {"type": "reset", "data": {"seed": 1}}))["type"] == "observation"
