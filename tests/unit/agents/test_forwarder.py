"""Bytes between a jail's socket and the ingress, both ways, until either side closes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agents.jail.forwarder import forwarded
from tests.support.waiting import until

pytestmark = pytest.mark.quick

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LARGE = bytes(range(256)) * 8192


@asynccontextmanager
async def through_forwarder() -> AsyncIterator[tuple[Pair, Pair]]:
    """(the agent's end, the ingress's end) of one forwarded connection."""
    arrived = asyncio.Queue[Pair]()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.put_nowait((reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    async with server, forwarded(listener, "127.0.0.1", port):
        agent = await asyncio.open_connection(*address)
        ingress = await arrived.get()
        try:
            yield agent, ingress
        finally:
            agent[1].close()
            ingress[1].close()


async def test_a_request_and_its_response_pass_whole() -> None:
    async with through_forwarder() as ((get, put), (read, write)):
        put.write(LARGE)
        assert await read.readexactly(len(LARGE)) == LARGE
        write.write(LARGE[::-1])
        assert await get.readexactly(len(LARGE)) == LARGE[::-1]


async def test_a_client_that_leaves_is_seen_by_the_ingress() -> None:
    async with through_forwarder() as ((_, put), (read, _write)):
        put.close()
        async with asyncio.timeout(30):
            assert await read.read() == b""


async def test_the_end_of_a_response_reaches_the_client() -> None:
    async with through_forwarder() as ((get, _), (_read, write)):
        write.write(b"end")
        write.close()
        async with asyncio.timeout(30):
            assert await get.read() == b"end"


async def test_without_an_ingress_a_connection_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    async with forwarded(listener, "127.0.0.1", port):
        reader, writer = await asyncio.open_connection(*address)
        await until(reader.at_eof, "the end of the connection")
        writer.close()
