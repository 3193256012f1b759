"""A call that waits on a stream is judged by the lease when it is written, not when it came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine.core.tools.link.call_stream import CallStream
from toolwright.tool.v1 import tool_pb2 as pb

pytestmark = pytest.mark.quick


class LeaseOver(Exception):
    """What ends the process in a real worker."""


class BusyRpc:
    """A gRPC stream that takes its first message until `room` is set."""

    def __init__(self) -> None:
        self.room = asyncio.get_running_loop().create_future()
        self.written: list[int] = []

    async def write(self, message: pb.StreamCallsRequest) -> None:
        self.written.append(message.id)
        await self.room

    def cancel(self) -> None:
        pass

    async def __aiter__(self) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


async def test_a_call_that_waited_beyond_the_lease_is_not_written() -> None:
    over, stopped = False, asyncio.Event()

    def check() -> None:
        if over:
            stopped.set()
            raise LeaseOver

    rpc = BusyRpc()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, _context: None)
    stream = CallStream(
        rpc,  # type: ignore[arg-type]
        on_answer=lambda _number, _answer: None,
        on_failure=lambda _number, _error: None,
        on_end=lambda _stream, _why: None,
        before_write=check,
    )
    stream.send(1, pb.CallToolRequest())
    stream.send(2, pb.CallToolRequest())
    over = True
    rpc.room.set_result(None)
    async with asyncio.timeout(10):
        await stopped.wait()
    stream.close()
    assert rpc.written == [1]
