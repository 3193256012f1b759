"""Servers and channels over real connections: who is let in, what fits, health and reflection."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.support.net import free_port
from tests.support.rpc_service import NAME, Service, list_tools, served, stub
from tests.support.tls import make_pem
from toolwright.rpc import options
from toolwright.rpc.auth import Tokens
from toolwright.rpc.channel import call, open_channel
from toolwright.rpc.errors import ListenError, TransportError
from toolwright.rpc.server import Server
from toolwright.rpc.tls import Certificate, read_authority, read_certificate
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc


async def test_a_message_just_below_the_limit_passes_and_one_above_it_is_refused() -> None:
    async with served(Service()) as address, stub(address) as there:
        below = pb.PutBlobRequest(data=bytes(options.MESSAGE_LIMIT - 64))
        assert (await there.PutBlob(iter([below]), timeout=60)).blob.size == len(below.data)
        above = pb.PutBlobRequest(data=bytes(options.MESSAGE_LIMIT + 1))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await there.PutBlob(iter([above]), timeout=60)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with grpc.insecure_channel(address) as anybodys:  # whose own limit is none
            plain = tool_pb2_grpc.ToolServiceStub(anybodys)
            with pytest.raises(grpc.RpcError) as refused:
                await asyncio.to_thread(plain.PutBlob, iter([above]), timeout=60)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_burst_of_thousands_is_not_cancelled() -> None:
    """Without `MOST_PENDING` gRPC cancels hundreds of these before any of them is begun. The client
    sends by threads of its own, while the server's loop takes nothing."""
    service = Service()
    async with served(service) as address:
        with grpc.insecure_channel(address) as channel:
            there = tool_pb2_grpc.ToolServiceStub(channel)
            pending = [there.ListTools.future(pb.ListToolsRequest()) for _ in range(2500)]
            codes = await asyncio.to_thread(lambda: {call.code() for call in pending})
    assert codes == {grpc.StatusCode.OK}
    assert options.MOST_PENDING > 2500


async def test_a_port_in_use_is_an_error_that_names_it() -> None:
    async with served(Service()) as address:
        with pytest.raises(ListenError, match=rf"{address}.*in use.*choose another"):
            async with served(Service(), address):
                pass


async def test_probes_ask_for_health_without_tls_and_token(tmp_path: Path) -> None:
    pem = make_pem(tmp_path / "tls")
    health = f"127.0.0.1:{free_port()}"
    certificate = read_certificate(pem.certificate, pem.key)
    server = Server("127.0.0.1:0", tokens=Tokens("secret"), certificate=certificate, probed=health)
    server.add(NAME, lambda s: tool_pb2_grpc.add_ToolServiceServicer_to_server(Service(), s))
    await server.start()
    async with open_channel(health) as channel:
        probe: Any = health_pb2_grpc.HealthStub(channel)
        for service in ("", NAME):
            request = health_pb2.HealthCheckRequest(service=service)
            answer = await probe.Check(request, timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        await server.set_serving(False)
        answer = await probe.Check(request, timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
    # There is nothing else at that address.
    with pytest.raises(TransportError) as failure:
        await list_tools(health, "secret")
    assert failure.value.code is grpc.StatusCode.UNIMPLEMENTED
    await server.stop(0)
    async with served(Service()) as taken:
        with pytest.raises(ListenError, match=taken):
            await Server("127.0.0.1:0", probed=taken).start()


HOG = """
import asyncio, resource, sys
from toolwright.rpc.auth import Tokens
from toolwright.rpc.server import Server
from toolwright.tool.v1 import tool_pb2_grpc

async def serve():
    server = Server("127.0.0.1:0", tokens=Tokens("secret"), probed=sys.argv[1])
    servicer = tool_pb2_grpc.ToolServiceServicer()
    server.add("t", lambda s: tool_pb2_grpc.add_ToolServiceServicer_to_server(servicer, s))
    await server.start()
    most = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(server.port, most(), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print(most(), flush=True)

asyncio.run(serve())
"""


async def test_of_who_is_not_let_in_nothing_is_read() -> None:
    """Messages of 60 MiB each took their room before they were refused. At the address for probes,
    where everybody is let in, no message is large."""
    health = f"127.0.0.1:{free_port()}"
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOG, health,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None
    port, before = map(int, (await server.stdout.readline()).split())
    large = bytes(60 << 20)
    async with open_channel(f"127.0.0.1:{port}", "guessed") as door, open_channel(health) as probe:
        asked = [
            channel.unary_unary(method)(large, timeout=20)
            for channel, method in (
                *[(door, f"/{NAME}/ListTools")] * 2,
                (door, "/no.such/Method"),
                (probe, "/grpc.health.v1.Health/Check"),
            )
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
    codes = [answer.code() for answer in answers]  # type: ignore[union-attr]
    assert codes[:2] == [grpc.StatusCode.UNAUTHENTICATED] * 2
    assert codes[3] is grpc.StatusCode.RESOURCE_EXHAUSTED
    after, _ = await server.communicate(b"\n")
    assert int(after) - before < 40


async def test_a_certificate_of_the_servers_lets_nobody_in(tmp_path: Path) -> None:
    pem = make_pem(tmp_path / "tls")
    certificate = read_certificate(pem.certificate, pem.key)
    with pytest.raises(ListenError, match="bearer token"):
        Server("0.0.0.0:0", certificate=certificate)
    with pytest.raises(ListenError, match="bearer token"):
        Server("0.0.0.0:0", clients=read_authority(pem.authority))


async def test_a_certificate_of_the_clients_lets_it_in(tmp_path: Path) -> None:
    pem, other = (make_pem(tmp_path / name) for name in ("ours", "theirs"))
    authority = read_authority(pem.authority)
    server = Server(
        "0.0.0.0:0",
        certificate=read_certificate(pem.certificate, pem.key),
        clients=authority,
    )
    server.add(NAME, lambda s: tool_pb2_grpc.add_ToolServiceServicer_to_server(Service(), s))
    await server.start()
    address = f"localhost:{server.port}"

    async def ask(identity: Certificate | None) -> str:
        async with open_channel(address, authority=authority, identity=identity) as channel:
            there = tool_pb2_grpc.ToolServiceStub(channel)
            return (await call(there.ListTools, pb.ListToolsRequest(), timeout=10)).service

    assert await ask(read_certificate(pem.certificate, pem.key)) == "here"
    for stranger in (None, read_certificate(other.certificate, other.key)):
        with pytest.raises(TransportError) as caught:
            await ask(stranger)
        assert caught.value.code is grpc.StatusCode.UNAVAILABLE
    await server.stop(0)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.7:1", "example.org:1"])
def test_other_machines_are_not_let_in_by_accident(listen: str) -> None:
    with pytest.raises(ListenError, match=r"bearer token.*127\.0\.0\.1"):
        Server(listen)


async def test_said_aloud_they_are() -> None:
    async with served(Service(), "0.0.0.0:0", insecure=True) as address:
        assert (await list_tools(address)).service == "here"
    async with served(Service(), "0.0.0.0:0", token="t") as address:
        assert (await list_tools(address, "t")).service == "here"


def test_what_is_local() -> None:
    ours = ("127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/tmp/x", "127.8.8.8:1")
    assert all(map(options.is_local, ours))
    assert not any(map(options.is_local, ("10.0.0.1:1", "host:1", "[::]:1")))


Ask = Callable[[Any], Any]


async def unary(service: Any) -> None:
    await service.ListTools(pb.ListToolsRequest(), timeout=10)


async def answers_stream(service: Any) -> None:
    pieces = [piece.data async for piece in service.GetBlob(pb.GetBlobRequest(), timeout=10)]
    assert pieces == [b"a", b"b"]


async def asks_stream(service: Any) -> None:
    await service.PutBlob(iter([pb.PutBlobRequest(data=b"abc")]), timeout=10)


@pytest.mark.parametrize("ask", [unary, answers_stream, asks_stream])
async def test_every_kind_of_call_carries_the_token(ask: Ask) -> None:
    async with served(Service(), token="secret") as address:
        async with stub(address, "secret") as service:
            await ask(service)
        for wrong in ("", "secreT"):
            async with stub(address, wrong) as service:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await ask(service)
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_health_and_reflection_answer() -> None:
    async with served(Service()) as address, open_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", NAME):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health.Check(health_pb2.HealthCheckRequest(service="other"), timeout=10)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND

        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        async for answer in reflection.ServerReflectionInfo(iter([request]), timeout=10):
            names = {service.name for service in answer.list_services_response.service}
            assert {NAME, "grpc.health.v1.Health"} <= names


def test_a_port_in_use_is_one_sentence_without_lines_of_grpc() -> None:
    script = (
        "import asyncio, socket\n"
        "from toolwright.rpc.errors import ListenError\n"
        "from toolwright.rpc.server import Server\n"
        "async def start():\n"
        "    with socket.create_server(('127.0.0.1', 0)) as taken:\n"
        "        try:\n"
        "            await Server('127.0.0.1:%d' % taken.getsockname()[1]).start()\n"
        "        except ListenError as error:\n"
        "            print('port is in use' in str(error))\n"
        "asyncio.run(start())\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "GRPC_VERBOSITY"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=60
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
