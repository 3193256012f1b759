"""Health and reflection. Every Toolwright server has both."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient
from toolsvc.check.connection import ANSWER_SECONDS, Refusal, ask
from toolsvc.check.types import CheckFailed, Rule, expect
from toolwright.tool.v1 import tool_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["ToolService"].full_name

# v1 and v1alpha have the same messages under two names.
_REFLECTIONS = ("grpc.reflection.v1", "grpc.reflection.v1alpha")


async def _health_of(client: CheckClient, service: str) -> None:
    stub: Any = health_pb2_grpc.HealthStub(client.connection.channel())
    answer = await ask(stub.Check, health_pb2.HealthCheckRequest(service=service))
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    expect(name == "SERVING", f"grpc.health.v1 says {name} of {service or 'the server'!r}")


@check(Rule.HEALTH)
async def health_of_the_server(client: CheckClient) -> None:
    """grpc.health.v1 says SERVING of the server while it serves."""
    await _health_of(client, "")


@check(Rule.HEALTH)
async def health_of_the_service(client: CheckClient) -> None:
    """grpc.health.v1 says SERVING of toolwright.tool.v1.ToolService while it serves."""
    await _health_of(client, SERVICE)


@check(Rule.HEALTH)
async def reflection_names_the_service(client: CheckClient) -> None:
    """Server reflection, v1 or v1alpha, lists toolwright.tool.v1.ToolService."""
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    reason = ""
    for package in _REFLECTIONS:
        stream = client.connection.channel().stream_stream(
            f"/{package}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )(iter([request]), timeout=ANSWER_SECONDS)
        try:
            async for answer in stream:
                names = [one.name for one in answer.list_services_response.service]
                expect(SERVICE in names, f"reflection lists {', '.join(names)}, not {SERVICE}")
                return
        except grpc.aio.AioRpcError as error:
            reason = str(Refusal.of("ServerReflectionInfo", error))
    raise CheckFailed(f"reflection does not answer: {reason}")


@check(Rule.HEALTH)
async def an_unknown_method_is_unimplemented(client: CheckClient) -> None:
    """A method outside the contract answers UNIMPLEMENTED."""
    method = client.connection.channel().unary_unary(
        f"/{SERVICE}/NoSuchMethod", request_serializer=bytes, response_deserializer=bytes
    )
    code = grpc.StatusCode.OK
    try:
        await method(b"", timeout=ANSWER_SECONDS)
    except grpc.aio.AioRpcError as error:
        code = error.code()
    expected = code is grpc.StatusCode.UNIMPLEMENTED
    expect(expected, f"an unknown method answered {code.name}, not UNIMPLEMENTED")
