"""Proxies of the environment: whom they catch, and that an error names them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.rpc_service import Service, list_tools, served
from toolwright.rpc import options
from toolwright.rpc.errors import TransportError
from toolwright.rpc.proxies import grpc_hint, proxy_for, shown

pytestmark = pytest.mark.quick
GONE = "http://me:secret@127.0.0.1:9"


@pytest.fixture
def proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy", "grpc_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, GONE)


@pytest.mark.usefixtures("proxies")
@pytest.mark.parametrize("spared", ["", "localhost", "other.example"])
@pytest.mark.parametrize("kind", ["127.0.0.1:0", "unix"])
async def test_no_proxy_between_processes_of_this_machine(
    spared: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", spared)
    async with served(Service(), f"unix:{tmp_path}/s" if kind == "unix" else kind) as address:
        assert (await list_tools(address)).service == "here"


@pytest.mark.usefixtures("proxies")
async def test_a_proxy_on_the_way_is_named() -> None:
    named = pytest.raises(TransportError, match=r"proxy http://127\.0\.0\.1:9 of https_proxy")
    with named as raised:
        await list_tools("tools.example:50051")
    assert "secret" not in str(raised.value)


@pytest.mark.usefixtures("proxies")
def test_which_requests_go_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("127.0.0.1:30000", "127.8.8.8", "[::1]:1", "localhost"):
        assert proxy_for(f"http://{host}/v1") is None
    for url in ("http://10.0.0.1/v1", "https://models.example/v1"):
        assert proxy_for(url) == GONE
    monkeypatch.setenv("no_proxy", ".example")
    assert proxy_for("http://models.example/v1") is None
    assert proxy_for("http://example.org/v1") == GONE


def test_what_is_shown_of_a_proxy() -> None:
    assert shown(GONE) == "http://127.0.0.1:9"
    assert shown("me:secret@proxy:3128") == "http://proxy:3128"


@pytest.mark.parametrize(
    ("details", "named"),
    [
        ("no connection to 127.0.0.1:9: connection refused", True),
        ("HTTP proxy returned response code 403", True),
        ("no connection to 10.0.0.1:50051: connection refused", False),
        ("the server is draining", False),
    ],
)
def test_only_a_failure_on_the_way_names_the_proxy(details: str, named: bool) -> None:
    assert bool(grpc_hint(details, {"http_proxy": GONE})) is named
    assert grpc_hint(details, {}) == ""


async def _stays(server_options: object, seconds: float) -> bool:
    """Whether an idle connection lives while its client pings it every 0.2 s."""
    server = grpc.aio.server(options=server_options)
    health_pb2_grpc.add_HealthServicer_to_server(health_pb2_grpc.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    fast = {"grpc.keepalive_time_ms": 200, "grpc.http2.max_pings_without_data": 0}
    channel = grpc.aio.insecure_channel(
        f"127.0.0.1:{port}",
        options=tuple({**dict(options.channel_options("127.0.0.1:1")), **fast}.items()),
    )
    with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    loop = asyncio.get_running_loop()
    ends, stays = loop.time() + seconds, True
    while stays and loop.time() < ends:
        await asyncio.sleep(0.05)
        stays = channel.get_state() is grpc.ChannelConnectivity.READY
    await channel.close()
    await server.stop(0)
    return stays


async def test_pings_of_an_idle_connection_are_permitted() -> None:
    fast = {"grpc.http2.min_ping_interval_without_data_ms": 100}
    ours = {**dict(options.SERVER), **fast}
    strict = {k: v for k, v in ours.items() if k != "grpc.keepalive_permit_without_calls"}
    ours_stays, strict_stays = await asyncio.gather(
        _stays(tuple(ours.items()), 2.0), _stays(tuple(strict.items()), 10.0)
    )
    assert ours_stays
    assert not strict_stays, "the test pings too rarely to see the difference"
