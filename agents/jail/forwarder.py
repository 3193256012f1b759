"""Forwards a jail's connections to the ingress, byte by byte."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

MOST_CONNECTIONS = 64
"""Connections of one agent at a time; others wait."""
_PIECE = 1 << 16


@asynccontextmanager
async def forwarded(listener: socket.socket, host: str, port: int) -> AsyncIterator[None]:
    """Accepts on a listening socket, until the block ends. host, port: of the ingress."""
    room = asyncio.Semaphore(MOST_CONNECTIONS)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with room:
            with suppress(OSError):
                await _join(reader, writer, host, port)
            writer.close()

    listener.setblocking(False)
    server = await asyncio.start_server(serve, sock=listener)
    try:
        yield
    finally:
        server.close()


async def _join(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
) -> None:
    there, back = await asyncio.open_connection(host, port)
    try:
        # An answer may end before its request does, but not the other way round.
        sending = asyncio.create_task(_copy(reader, back))
        try:
            await _copy(there, writer)
        finally:
            sending.cancel()
    finally:
        back.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
