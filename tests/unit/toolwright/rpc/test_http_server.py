"""The door of every HTTP face: who is let in, and what those cost who are not."""

from __future__ import annotations

import asyncio
import gzip
import threading
import tracemalloc
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from toolwright.rpc import http_server
from toolwright.rpc.auth import caller
from toolwright.rpc.http_server import HttpServer, body_of
from toolwright.rpc.options import TOKEN_VARIABLE

MIB = 1 << 20
JSON = {"Content-Type": "application/json"}


async def length(request: web.Request) -> web.Response:
    return web.json_response({"length": len(await body_of(request)), "caller": caller()})


def face() -> HttpServer:
    app = web.Application(client_max_size=64 * MIB)
    app.router.add_post("/", length)
    return HttpServer(
        app, "127.0.0.1:0", option="--face", insecure=False, insecure_option="--insecure"
    )


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    return "secret"


@pytest.fixture
async def server(token: str) -> AsyncIterator[HttpServer]:
    async with face() as running:
        yield running


async def raw(server: HttpServer, data: bytes) -> bytes:
    """What comes back until the end of the head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(data)
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return head


async def post(server: HttpServer, body: bytes, **headers: str) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{server.port}/", data=body, headers=headers) as answer,
    ):
        return answer.status


@pytest.mark.parametrize(
    "given", [b"Bearer \xff\xfe", "Bearer s\u00e9cret".encode(), b"", b"secret"]
)
async def test_whatever_stands_in_the_header_is_a_plain_refusal(
    server: HttpServer, given: bytes
) -> None:
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nAuthorization: %b\r\n\r\n"
    assert (await raw(server, head % given)).startswith(b"HTTP/1.1 401 ")
    assert (await raw(server, head % b"Bearer secret")).startswith(b"HTTP/1.1 200 ")


async def test_a_packed_body_is_refused_and_costs_nothing(server: HttpServer, token: str) -> None:
    packed = gzip.compress(bytes(128 * MIB), compresslevel=1)
    given = {
        "Authorization": f"Bearer {token}", "Content-Encoding": "gzip",
        "Content-Type": "application/json",
    }  # fmt: skip
    tracemalloc.start()
    try:
        status = await post(server, packed, **given)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert status == 415
    assert most < 8 * MIB


async def test_silent_connections_take_no_thread_and_are_closed(
    server: HttpServer, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "IDLE_SECONDS", 0.05)
    async with face() as impatient:
        threads = threading.active_count()
        connections = [
            await asyncio.open_connection("127.0.0.1", impatient.port) for _ in range(50)
        ]
        connections[0][1].write(b"POST / HTTP/1.1\r\nHost: ")
        assert threading.active_count() <= threads
        for reader, writer in connections:
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()


async def test_beyond_its_room_connections_are_closed_at_once(
    server: HttpServer, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 2)
    taken = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    for _, one in (*taken, (reader, writer)):
        one.close()


HEAD = (
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
    b"Authorization: Bearer secret\r\n"
)
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 9\r\n\r\n",
        b"Content-Length: 9\r\n\r\nshort",
        CHUNKED,
        CHUNKED + b"4\r\nabcd\r\n",
    ],
)
async def test_a_body_that_never_ends_is_given_up(
    server: HttpServer, token: str, monkeypatch: pytest.MonkeyPatch, rest: bytes
) -> None:
    monkeypatch.setattr(http_server, "BODY_SECONDS", 0.05)
    assert (await raw(server, HEAD + rest)).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("rest", "status"),
    [
        (b"Content-Length: -1\r\n\r\n", b"400"),
        (b"Content-Length: many\r\n\r\n", b"400"),
        (b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", b"400"),
        (b"Content-Length: 2\r\n" + CHUNKED + b"0\r\n\r\n", b"400"),
        (b"Content-Length: 99999999999\r\n\r\n", b"413"),
        (CHUNKED + b"zz\r\n", b"400"),
        (b"X: " + b"x" * MIB + b"\r\n\r\n", b"400"),
        (b"".join(b"X-%d: x\r\n" % number for number in range(100_000)), b"400"),
    ],
)
async def test_a_wrong_head_or_length_is_refused_at_once(
    server: HttpServer, token: str, rest: bytes, status: bytes
) -> None:
    assert (await raw(server, HEAD + rest)).split()[1] == status
    assert await post(server, b"{}", **{"Authorization": "Bearer secret", **JSON}) == 200


async def test_a_chunked_body_without_end_is_read_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch, server: HttpServer, token: str
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        while True:
            yield bytes(MIB)

    tracemalloc.start()
    try:
        async with aiohttp.ClientSession() as session:
            headers = {"Authorization": "Bearer secret", **JSON}
            url = f"http://127.0.0.1:{server.port}/"
            async with session.post(url, data=chunks(), headers=headers) as answer:
                assert answer.status == 413
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * 64 * MIB
