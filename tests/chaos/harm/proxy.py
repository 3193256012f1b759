"""TCP between two processes that can be cut, silenced and slowed while they talk.

A `Link` listens on a port of its own and forwards to another one. One thread with an event loop
serves all links of a test process.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from enum import StrEnum, auto
from typing import Any

PIECE = 65_536
SLOW_S = 0.05
"""Delay of each piece that was read at once, in seconds."""


class Mode(StrEnum):
    """What a link does with connections."""

    PASS = auto()
    """Forwards."""
    CUT = auto()
    """Resets those that stand and those that come."""
    STALL = auto()
    """Takes connections and bytes, and forwards nothing until the mode ends."""
    HOLE = auto()
    """As STALL, and connections that stood stay silent for good: their peer is half-open. Those
    that come meanwhile begin when the mode ends, as a connect does that is tried again."""
    SLOW = auto()
    """Forwards each piece late."""


class Link:
    """One port. Made by `Proxy.link`; `set` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int, target: int) -> None:
        self.port = port
        self._loop = loop
        self._target = target
        self._mode = Mode.PASS
        self._moved = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._dead: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._taken, "127.0.0.1", self.port)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._writers):
            _reset(writer)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def set(self, mode: Mode) -> None:
        """Returns when the mode is in force."""
        asyncio.run_coroutine_threadsafe(self._set(mode), self._loop).result(10)

    async def _set(self, mode: Mode) -> None:
        self._mode = mode
        if mode is Mode.CUT:
            for writer in tuple(self._writers):
                _reset(writer)
        if mode is Mode.HOLE:
            self._dead |= self._writers
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._take(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        other: asyncio.StreamWriter | None = None
        over = False
        try:
            if self._mode is Mode.CUT:
                return
            while self._mode is Mode.HOLE:
                await self._moved.wait()
            answers, other = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(other)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward(reader, other))
                both.create_task(self._forward(answers, writer))
            over = True
        except* OSError:
            pass  # one side is gone, so is the other
        finally:
            for one in (writer, other):
                if one is not None:
                    if over:
                        one.close()
                    else:
                        _reset(one)
                    self._writers.discard(one)
                    self._dead.discard(one)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            piece = await reader.read(PIECE)
            while self._mode in (Mode.STALL, Mode.HOLE) or writer in self._dead:
                await self._moved.wait()
            if not piece:
                break
            if self._mode is Mode.SLOW:
                await asyncio.sleep(SLOW_S)
            writer.write(piece)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()


class Proxy:
    """The thread. Leave it with `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._links: list[Link] = []

    def link(self, port: int, target: int) -> Link:
        """Forwards `port` to `target`, both on loopback."""
        made = Link(self._loop, port, target)
        self._links.append(made)
        self._await(made.open())
        return made

    def close(self) -> None:
        for link in self._links:
            self._await(link.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _await(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection with RST."""
    taken = writer.get_extra_info("socket")
    if taken is not None and taken.fileno() >= 0:
        with suppress(OSError):
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
