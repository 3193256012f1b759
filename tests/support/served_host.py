"""A host behind gRPC in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolsvc.edge.service import SERVICE_NAME, ToolServicer
from toolsvc.host.host import Host
from toolwright.rpc.server import Server
from toolwright.tool.v1 import tool_pb2_grpc


@asynccontextmanager
async def served(host: Host) -> AsyncIterator[str]:
    """Address at which the host answers, on loopback."""
    server = Server("127.0.0.1:0")
    servicer = ToolServicer(host, "test")
    server.add(
        SERVICE_NAME,
        lambda grpc: tool_pb2_grpc.add_ToolServiceServicer_to_server(servicer, grpc),
    )
    await server.start()
    yield f"127.0.0.1:{server.port}"
    await server.stop(0)
