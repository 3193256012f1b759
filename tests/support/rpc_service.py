"""A ToolService on a real server, that lists and streams both ways: for tests of toolwright.rpc."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from toolwright.rpc.auth import Tokens
from toolwright.rpc.channel import call, open_channel
from toolwright.rpc.errors import answers_errors
from toolwright.rpc.server import Server
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

NAME = pb.DESCRIPTOR.services_by_name["ToolService"].full_name


class Service(tool_pb2_grpc.ToolServiceServicer):
    """ListTools raises `error`; GetBlob and PutBlob stream; the rest is not served."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    @answers_errors
    async def ListTools(self, request: pb.ListToolsRequest, context: Any) -> pb.ListToolsResponse:
        if self.error is not None:
            raise self.error
        return pb.ListToolsResponse(service="here")

    async def GetBlob(
        self, request: pb.GetBlobRequest, context: Any
    ) -> AsyncIterator[pb.GetBlobResponse]:
        for piece in (b"a", b"b"):
            yield pb.GetBlobResponse(data=piece)

    async def PutBlob(
        self, requests: AsyncIterator[pb.PutBlobRequest], context: Any
    ) -> pb.PutBlobResponse:
        size = sum([len(r.data) async for r in requests])
        out = pb.PutBlobResponse()
        out.blob.size = size
        return out


@asynccontextmanager
async def served(
    service: Service, listen: str = "127.0.0.1:0", *, token: str = "", insecure: bool = False
) -> AsyncIterator[str]:
    """The address where `service` answers."""
    server = Server(listen, tokens=Tokens(token), insecure=insecure)
    server.add(NAME, lambda s: tool_pb2_grpc.add_ToolServiceServicer_to_server(service, s))
    await server.start()
    try:
        yield listen if listen.startswith("unix:") else f"127.0.0.1:{server.port}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def stub(address: str, token: str = "") -> AsyncIterator[Any]:
    async with open_channel(address, token) as channel:
        yield tool_pb2_grpc.ToolServiceStub(channel)


async def list_tools(address: str, token: str = "") -> pb.ListToolsResponse:
    async with stub(address, token) as service:
        return await call(service.ListTools, pb.ListToolsRequest(), timeout=10)
