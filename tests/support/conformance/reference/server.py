"""A server for the reference service and its broken variants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tests.support.conformance.reference.service import Reference
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc


@asynccontextmanager
async def serving(service: Reference, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """The address of a server that serves `service`.

    Not toolwright.rpc.server: that one cannot be had without health, reflection or its limit.
    """
    limits = (
        ("grpc.max_receive_message_length", service.message_bytes),
        ("grpc.max_send_message_length", service.message_bytes),
    )
    server = grpc.aio.server(interceptors=service.interceptors, options=limits)
    tool_pb2_grpc.add_ToolServiceServicer_to_server(service, server)
    name = pb.DESCRIPTOR.services_by_name["ToolService"].full_name
    if service.health:
        answers = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(answers, server)
        for one in ("", name):
            await answers.set(one, health_pb2.HealthCheckResponse.SERVING)
    if service.reflection:
        reflection.enable_server_reflection((name, reflection.SERVICE_NAME), server)
    port = server.add_insecure_port(listen)
    await server.start()
    reaper = asyncio.create_task(service.reap())
    try:
        yield f"{listen.rpartition(':')[0]}:{port}"
    finally:
        reaper.cancel()
        for session_id in list(service.sessions):
            service.close(session_id)
        await server.stop(0.2)
