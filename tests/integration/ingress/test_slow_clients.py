"""Clients that do not read their streams, or leave in the middle of a write."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ingress.http import event_stream
from ingress.http.event_stream import EventStream
from tests.support.agents import END, Served, served_agents

pytestmark = pytest.mark.quick

LONG = "word " * 8000 + END
SMALL = 4096
"""Bytes of a socket's buffers."""
Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
async def served(policy_folder: Path) -> AsyncIterator[Served]:
    async with served_agents(policy_folder, [LONG, LONG]) as found:
        listening = found.server._listening
        assert listening is not None
        listening.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        yield found


@asynccontextmanager
async def unread(served: Served) -> AsyncIterator[socket.socket]:
    """A client that has sent a request for a stream, and reads nothing."""
    body = json.dumps(
        {"model": "policy", "stream": True, "messages": [{"role": "user", "content": "q"}]}
    ).encode()
    head = (
        "POST /t/key/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", served.server.port))
        await loop.sock_sendall(client, head.encode() + body)
        yield client


async def test_a_client_that_does_not_read_is_cut_off(
    served: Served, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "WRITE_SECONDS", 0.2)
    async with unread(served):
        await until(lambda: served.server.in_flight == 0)


@pytest.mark.parametrize("waits", [False, True], ids=["delta", "keep-alive"])
async def test_a_client_leaves_in_the_middle_of_a_write(
    served: Served, until: Until, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    writing = asyncio.Event()
    write = EventStream._write

    async def seen(stream: EventStream, data: bytes) -> None:
        written = asyncio.ensure_future(write(stream, data))
        if not (await asyncio.wait((written,), timeout=0.1))[0]:
            writing.set()
        try:
            await written
        except asyncio.CancelledError:
            written.cancel()
            raise

    monkeypatch.setattr(EventStream, "_write", seen)
    if waits:
        monkeypatch.setattr(event_stream, "KEEP_ALIVE_SECONDS", 0)
        served.engine.gate.clear()
    with capture_logs() as logs:
        async with unread(served):
            await asyncio.wait_for(writing.wait(), 30)
        await until(lambda: served.server.in_flight == 0)
    assert not [one for one in logs if one["log_level"] in ("error", "warning")]
