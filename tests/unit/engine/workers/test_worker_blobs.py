"""A worker reads blobs from its coordinator across breaks of their connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from engine.serving.worker.connection import Connection
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.crew.v1 import crew_pb2_grpc
from toolwright.rpc.errors import ServiceError, abort

pytestmark = pytest.mark.quick


class Breaking(crew_pb2_grpc.CrewServiceServicer):
    """Breaks the first read of the blob "held" amid its pieces; has no other blob."""

    reads = 0

    async def GetBlob(
        self, request: pb.GetBlobRequest, context: Any
    ) -> AsyncIterator[pb.GetBlobResponse]:
        self.reads += 1
        if request.sha256 != "held":
            await abort(context, ServiceError(reasons.ERROR_REASON_BLOB_NOT_FOUND, "no blob"))
        yield pb.GetBlobResponse(data=b"whole ")
        if self.reads == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        yield pb.GetBlobResponse(data=b"blob")


async def test_a_broken_read_of_a_blob_is_repeated_and_a_missing_blob_is_not() -> None:
    server = grpc.aio.server()
    servicer = Breaking()
    crew_pb2_grpc.add_CrewServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    connection = Connection(f"127.0.0.1:{port}", "w1")
    try:
        assert await connection.blob("held") == b"whole blob"
        assert servicer.reads == 2
        assert await connection.blob("missing") is None
        assert servicer.reads == 3
    finally:
        await connection.close()
        await server.stop(None)
