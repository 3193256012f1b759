"""One host as the front has it: a real server and connections; its life and death are played."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

import toolsvc.fleet.link
from tests.support.fleets import Word, link_to
from tests.support.tools import ToolDouble, serving, text
from toolsvc.fleet.hosts import HOST_NAME, HostGone, HostProcess, HostSilent, Ready
from toolsvc.fleet.link import HostLink, HostLost
from toolsvc.fleet.ray.actor import ActorAssignment, HostActor
from toolsvc.service_config import ServiceConfig
from toolsvc.serving import service_name
from toolwright.cluster.certificate import self_signed
from toolwright.rpc.auth import TokenOnBehalf
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import TransportError
from toolwright.rpc.server import Server
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

ECHO = """
from toolsvc import tool


@tool
def echo(text: str) -> str:
    return text
"""
CALL = pb.CallToolRequest(session_id="s", call_id="c", arguments={"code": "1+2"})


@asynccontextmanager
async def linked(
    double: ToolDouble, *said: frozenset[str] | Exception
) -> AsyncIterator[tuple[HostLink, Word]]:
    word = Word(said)
    link = link_to(double, word)
    try:
        yield link, word
    finally:
        await link.close()


async def answer(link: HostLink, seconds: float = 20.0) -> str:
    response: Any = await link.ask("CallTool", CALL, seconds)
    return str(response.result.observation[0].text)


async def test_a_host_that_comes_back_is_asked_again_and_runs_it_once() -> None:
    double = ToolDouble()
    async with serving(double), linked(double) as (link, _):
        assert await answer(link) == "3"
        await double.stop()
        asking = asyncio.create_task(answer(link))
        async with serving(double, int(double.address.rpartition(":")[2])):
            assert await asking == "3"
        assert double.ran == ["c"]


async def test_a_host_that_does_not_come_back_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolsvc.fleet.link, "GIVE_UP_SECONDS", 0.05)
    async with serving(ToolDouble()) as double, linked(double) as (link, _):
        await double.stop()
        asked = await asyncio.gather(*(answer(link) for _ in range(8)), return_exceptions=True)
        assert {type(one) for one in asked} == {HostLost}
        assert link.lost
        with pytest.raises(HostLost, match="does not answer any more"):
            await answer(link)


async def test_an_actor_that_has_died_ends_all_waiting() -> None:
    """Also where the connection still looks well, as that to a machine without power does."""

    async def never(request: pb.CallToolRequest) -> pb.CallResult:
        await asyncio.Event().wait()
        return text("")

    gone = HostGone("its node has died")
    async with serving(ToolDouble(never)) as double, linked(double, gone) as (link, word):
        waiting = asyncio.create_task(answer(link))
        await double.called.wait()
        with pytest.raises(HostLost, match="its node has died"):
            await link.sessions()
        await link.close()
        with pytest.raises(HostLost, match="its node has died"):
            await waiting
        assert word.killed


async def test_who_is_cancelled_as_the_host_is_lost_is_cancelled() -> None:
    """Else a watch that was stopped would go on, and replace a host of a service that ends."""

    class CancelsItsListener(Word):
        async def beat(self) -> frozenset[str]:
            try:
                return await super().beat()
            finally:
                looking.cancel()

    async with serving(ToolDouble()) as double:
        link = link_to(double, CancelsItsListener(()))
        looking = asyncio.create_task(link.sessions())
        await asyncio.sleep(0)
        link.lose("its node has died")
        with pytest.raises(asyncio.CancelledError):
            await looking
        await link.close()


async def test_an_actor_that_ray_does_not_reach_lives_as_long_as_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolsvc.fleet.link, "_PAUSE_SECONDS", 0.0)
    silent, held = HostSilent("no connection"), frozenset({"s"})
    async with serving(ToolDouble()) as double, linked(double, silent, silent, held) as (link, _):
        assert await link.sessions() == held
        assert not link.lost


async def test_off_loopback_the_front_trusts_that_hosts_own_certificate_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolsvc.fleet.link, "GIVE_UP_SECONDS", 0.05)
    shown, other = self_signed(HOST_NAME), self_signed(HOST_NAME)
    server = Server("0.0.0.0:0", tokens=TokenOnBehalf("token"), certificate=shown)
    servicer = ToolDouble()
    server.add("t", lambda s: tool_pb2_grpc.add_ToolServiceServicer_to_server(servicer, s))
    await server.start()
    endpoint = f"127.0.0.1:{server.port}"

    async def names(certificate: bytes, token: str) -> list[str]:
        ready = Ready(link=endpoint, tools=(), isolation="", certificate=certificate)
        link = HostLink(0, cast("HostProcess", Word(())), ready, token)
        try:
            answer = await link.ask("ListTools", pb.ListToolsRequest(), 5.0)
            return [tool.name for tool in answer.tools]
        finally:
            await link.close()

    assert await names(shown.chain, "token") == ["python"]
    with pytest.raises(TransportError, match="UNAUTHENTICATED"):
        await names(shown.chain, "guessed")
    for wrong in (other.chain, b""):
        with pytest.raises(HostLost):
            await names(wrong, "token")
    await server.stop(0)


async def test_a_host_off_loopback_listens_with_a_certificate_and_a_token(tmp_path: Path) -> None:
    plugin = tmp_path / "echo.py"
    plugin.write_text(ECHO, encoding="utf-8")
    assignment = ActorAssignment(
        config=ServiceConfig(tools=(str(plugin),), listen=""),
        tools=("echo",),
        folder=os.getcwd(),
        token="token",
        version=service_name(),
    )
    actor = HostActor()
    ready = await actor._start(assignment, "0.0.0.0")
    assert isinstance(ready, Ready)
    link = HostLink(0, cast("HostProcess", Word(())), ready, "token")
    answer = await link.ask("ListTools", pb.ListToolsRequest(), 5.0)
    assert [tool.name for tool in answer.tools] == ["echo"]
    async with open_channel(ready.link, "token") as plain:
        with pytest.raises(grpc.aio.AioRpcError):
            await tool_pb2_grpc.ToolServiceStub(plain).ListTools(pb.ListToolsRequest(), timeout=5)
    await link.close()
    await actor.end()
