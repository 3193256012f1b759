"""A worker's connection to its coordinator: one gRPC stream, which is dialled again after a break.

Invariants
- Reports leave `REPORT_S` after the first news, or sooner if work waits for them.
- A new stream begins with Hello, then with all reports that the coordinator has not confirmed.
- Messages of the coordinator are handled one by one, in order, on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
import structlog

from engine.core.tools.services import ToolServices
from engine.serving.worker.reports import Reports
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.crew.v1 import crew_pb2_grpc
from toolwright.process.backoff import Backoff
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import ServiceError, from_rpc_error

REPORT_S = 0.05
"""Time between an event and the report that holds it: as the journal commits."""
SOON_S = 0.005
"""The same if another process waits for the report."""
IDLE_S = 0.25
"""Interval between looks for tool sessions that nothing else reported."""
BACKOFF = Backoff(0.05, 1.0)

Connect = Callable[[str], grpc.aio.Channel]
"""Opens a channel to an address."""

log = structlog.get_logger("worker")


class Connection:
    """The stream of one worker. `run` it; `close` the channel."""

    def __init__(self, address: str, name: str, connect: Connect = open_channel) -> None:
        """address: of the coordinator. name: of this worker's life. connect: replaces gRPC."""
        self._name = name
        self._channel = connect(address)
        self._stub: Any = crew_pb2_grpc.CrewServiceStub(self._channel)
        self._outbox: asyncio.Queue[pb.WorkRequest] | None = None
        self._wake = asyncio.Event()
        self._soon = asyncio.Event()
        self.reports = Reports(self._due)
        self.tools: ToolServices | None = None
        """Services whose sessions are reported, once they are open."""
        self.ready = False
        self._seen = 0

    async def close(self) -> None:
        await self._channel.close()

    async def run(self, handle: Callable[[pb.WorkResponse], Awaitable[None]]) -> None:
        """Connects and handles messages until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._report())
            failures = 0
            while True:
                began = asyncio.get_running_loop().time()
                try:
                    await self._stream(handle)
                except grpc.aio.AioRpcError as error:
                    log.warning("coordinator_away", error=str(error.details()))
                if asyncio.get_running_loop().time() - began > 1.0:
                    failures = 0
                await asyncio.sleep(BACKOFF.pause(failures))
                failures += 1

    def send(self, message: pb.WorkRequest) -> None:
        """Sends a message that may be lost with the connection."""
        if self._outbox is not None:
            self._outbox.put_nowait(message)

    def set_ready(self) -> None:
        """Reports that the worker takes assignments; repeated on each new stream."""
        self.ready = True
        self.send(pb.WorkRequest(ready=pb.Ready()))

    def samplers_seen(self, number: int) -> None:
        """Confirms a state of the samplers; repeated on each new stream."""
        self._seen = number
        self.send(pb.WorkRequest(samplers_seen=pb.SamplersSeen(number=number)))

    def flush(self) -> None:
        """Sends what is unreported now."""
        for report in self.reports.close(self.tools):
            self.send(pb.WorkRequest(report=report))

    async def blob(self, sha256: str) -> bytes | None:
        """The bytes of a blob; None if the coordinator has none. Retries until the coordinator
        answers; a worker whose coordinator is away for too long ends with its lease."""
        failures = 0
        while True:
            try:
                call = self._stub.GetBlob(pb.GetBlobRequest(sha256=sha256))
                return b"".join([piece.data async for piece in call])
            except grpc.aio.AioRpcError as error:
                found = from_rpc_error(error)
                log.warning("blob_not_read", sha256=sha256, error=str(error.details()))
                if (
                    isinstance(found, ServiceError)
                    and found.reason == reasons.ERROR_REASON_BLOB_NOT_FOUND
                ):
                    return None
            await asyncio.sleep(BACKOFF.pause(failures))
            failures += 1

    async def _stream(self, handle: Callable[[pb.WorkResponse], Awaitable[None]]) -> None:
        outbox: asyncio.Queue[pb.WorkRequest] = asyncio.Queue()
        outbox.put_nowait(pb.WorkRequest(hello=pb.Hello(worker=self._name)))
        if self.ready:
            outbox.put_nowait(pb.WorkRequest(ready=pb.Ready()))
        outbox.put_nowait(pb.WorkRequest(samplers_seen=pb.SamplersSeen(number=self._seen)))
        for report in self.reports.unconfirmed:
            outbox.put_nowait(pb.WorkRequest(report=report))
        call = self._stub.Work()
        self._outbox = outbox
        writing = asyncio.create_task(self._write(call, outbox))
        try:
            async for message in call:
                await handle(message)
        finally:
            self._outbox = None
            writing.cancel()
            call.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def _write(self, call: Any, outbox: asyncio.Queue[pb.WorkRequest]) -> None:
        while True:
            await call.write(await outbox.get())

    def _due(self, soon: bool) -> None:
        self._wake.set()
        if soon:
            self._soon.set()

    async def _report(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_S):
                    await self._wake.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await self._soon.wait()
                    await asyncio.sleep(SOON_S)
            self._wake.clear()
            self._soon.clear()
            self.flush()
