"""What one who is let in cannot hold, or ask for, over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.service import refused
from toolsvc.edge.service import SERVICE_NAME, ToolServicer
from toolsvc.edge.wire import LONGEST_ID
from toolsvc.host.host import Host
from toolsvc.host.task_blobs import BLOB_BYTES, LEAST_BYTES
from toolwright.common.v1 import media_pb2, reasons_pb2
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.channel import open_channel
from toolwright.rpc.server import Server
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc


@pytest.fixture
async def stub(host: Host) -> AsyncIterator[Any]:
    server = Server("127.0.0.1:0")
    servicer = ToolServicer(host, "test")
    server.add(SERVICE_NAME, lambda s: tool_pb2_grpc.add_ToolServiceServicer_to_server(servicer, s))
    await server.start()
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        yield tool_pb2_grpc.ToolServiceStub(channel)
    await server.stop(0)


async def test_an_upload_that_falls_silent_holds_next_to_nothing_and_is_given_up(
    stub: Any, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolsvc.edge.servicer.SILENCE_SECONDS", 0.2)
    begun = asyncio.Event()

    async def pieces() -> AsyncIterator[pb.PutBlobRequest]:
        blob = media_pb2.BlobRef(sha256="0" * 64, media_type="image/png", size=BLOB_BYTES)
        yield pb.PutBlobRequest(blob=blob, data=b"x")
        begun.set()
        await asyncio.Event().wait()

    uploads = [asyncio.create_task(rpc(stub.PutBlob, pieces(), timeout=20)) for _ in range(20)]
    await begun.wait()
    assert host.blob_bytes <= 20 * LEAST_BYTES
    for upload in uploads:
        with refused(reasons_pb2.ERROR_REASON_INVALID_REQUEST):
            await upload
    assert host.blob_bytes == 0


@pytest.mark.parametrize("field", ["session_id", "owner"])
async def test_an_id_that_would_fill_tables_is_refused(stub: Any, field: str) -> None:
    request = pb.OpenSessionRequest(session_id="s", owner="o")
    setattr(request, field, "x" * LONGEST_ID)
    await rpc(stub.OpenSession, request, timeout=20)
    setattr(request, field, "x" * 20_000)
    with refused(reasons_pb2.ERROR_REASON_INVALID_REQUEST) as failure:
        await rpc(stub.OpenSession, request, timeout=20)
    assert failure.value.subject == field


async def test_an_id_of_any_length_is_refused_typed(stub: Any) -> None:
    request = pb.CallToolRequest(session_id="ü" * LONGEST_ID, call_id="c", action="x")
    with refused(reasons_pb2.ERROR_REASON_SESSION_NOT_FOUND):
        await rpc(stub.CallTool, request, timeout=20)
