"""CrewService: the workers' streams at their coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from engine.serving.crew.worker_link import WorkerLink
from engine.serving.crew.workers import Workers
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.crew.v1 import crew_pb2_grpc
from toolwright.rpc.options import PIECE_BYTES


class CrewServicer(crew_pb2_grpc.CrewServiceServicer):
    """The service of one engine."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def Work(
        self, requests: AsyncIterator[pb.WorkRequest], context: Any
    ) -> AsyncIterator[pb.WorkResponse]:
        first = await anext(aiter(requests), None)
        link = None if first is None else self._workers.named(first.hello.worker)
        if link is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no worker of that name lives")
            return
        outbox = link.attach(self._workers.present)
        reading = asyncio.create_task(self._read(link, requests, outbox))
        try:
            while (message := await outbox.get()) is not None:
                yield message
        finally:
            link.detach(outbox)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def GetBlob(
        self, request: pb.GetBlobRequest, context: Any
    ) -> AsyncIterator[pb.GetBlobResponse]:
        data = await self._workers.blob(request.sha256)
        if data is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no blob {request.sha256}")
            return
        for at in range(0, len(data), PIECE_BYTES):
            yield pb.GetBlobResponse(data=data[at : at + PIECE_BYTES])

    async def _read(
        self,
        link: WorkerLink,
        requests: AsyncIterator[pb.WorkRequest],
        outbox: asyncio.Queue[pb.WorkResponse | None],
    ) -> None:
        try:
            async for message in requests:
                self._workers.take(link, message)
        finally:
            outbox.put_nowait(None)
