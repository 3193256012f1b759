"""CrewService: the workers' streams at their coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc.aio

from engine.serving.crew.worker_link import WorkerLink
from engine.serving.crew.workers import Workers
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.crew.v1 import crew_pb2, crew_pb2_grpc
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.rpc.auth import Tokens
from toolwright.rpc.errors import ServiceError, abort
from toolwright.rpc.options import PIECE_BYTES
from toolwright.rpc.server import Server
from toolwright.rpc.tls import Certificate

_CREW = crew_pb2.DESCRIPTOR.services_by_name["CrewService"].full_name


class CrewServicer(crew_pb2_grpc.CrewServiceServicer):
    """The service of one engine."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def Work(  # type: ignore[override]
        self, _requests: Any, context: Any
    ) -> None:
        first = await context.read()
        link = None if first is grpc.aio.EOF else self._workers.named(first.hello.worker)
        if link is None:
            return  # the stream ends; a worker whose work is elsewhere ends with its lease
        outbox = link.attach(self._workers.present)
        reading = asyncio.create_task(self._read(link, context, outbox))
        try:
            while (message := await outbox.get()) is not None:
                await context.write(message)
        finally:
            link.detach(outbox)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def GetBlob(
        self, request: pb.GetBlobRequest, context: Any
    ) -> AsyncIterator[pb.GetBlobResponse]:
        data = await self._workers.blob(request.sha256)
        if data is None:
            error = ServiceError(
                reasons.ERROR_REASON_BLOB_NOT_FOUND,
                f"no assignment and no attempt refers to blob {request.sha256}",
                subject=request.sha256,
            )
            await abort(context, error)
            return
        for at in range(0, len(data), PIECE_BYTES):
            yield pb.GetBlobResponse(data=data[at : at + PIECE_BYTES])

    async def _read(
        self, link: WorkerLink, context: Any, outbox: asyncio.Queue[pb.WorkResponse | None]
    ) -> None:
        try:
            while (message := await context.read()) is not grpc.aio.EOF:
                self._workers.take(link, message)
        finally:
            outbox.put_nowait(None)


def crew_server(
    address: str,
    servicer: CrewServicer,
    *,
    tokens: Tokens | None = None,
    certificate: Certificate | None = None,
) -> Server:
    """The server of a coordinator, which is not started."""
    server = Server(address, tokens=tokens, certificate=certificate)
    server.add(_CREW, partial(crew_pb2_grpc.add_CrewServiceServicer_to_server, servicer))
    return server
