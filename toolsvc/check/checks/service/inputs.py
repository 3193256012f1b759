"""Malformed, huge and unusual input: refused or answered, and the service keeps serving."""

from __future__ import annotations

from typing import Any

import grpc.aio

from toolsvc.check.check import check
from toolsvc.check.checks.service.health import SERVICE
from toolsvc.check.client import CheckClient, text_of
from toolsvc.check.connection import ANSWER_SECONDS, Refusal, ask
from toolsvc.check.probe import Kind
from toolsvc.check.types import CheckFailed, Rule, expect
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb

HUGE = 1 << 20
HOSTILE = "nul \x00 bell \x07 escape \x1b[31m bidi \u202e\u2066 line \u2028 joined \u0061\u0301"
FOREIGN = "z\u00fcrich \u4f60\u597d \u05e9\u05dc\u05d5\u05dd \U0001f469\u200d\U0001f680 \U0010fffd"


async def _answered_or_invalid(client: CheckClient, what: str, **fields: Any) -> None:
    """Raises CheckFailed unless the call has a result or INVALID_REQUEST, and a next call works."""
    session = await client.open()
    try:
        await session.call(**fields)
    except Refusal as refusal:
        expect(refusal.reason == "INVALID_REQUEST", f"{what}: {refusal}")
    await session.call()


@check(Rule.INPUT)
async def an_empty_action_is_an_answer(client: CheckClient) -> None:
    """An empty action is answered to the policy, not by an error of the service."""
    session = await client.open()
    result = await session.call(action="")
    expect(
        result.valid or result.invalid_reason, "an empty action was called invalid without a reason"
    )


@check(Rule.INPUT)
async def a_huge_action_harms_nobody(client: CheckClient) -> None:
    """An action of 1 MiB is answered or INVALID_REQUEST, and the session stays usable."""
    subject = client.subject()
    await _answered_or_invalid(client, "a huge action", action=subject.written("7" * HUGE))


@check(Rule.INPUT)
async def hostile_text_harms_nobody(client: CheckClient) -> None:
    """An action with NUL, escapes, direction marks and lone line separators is answered or
    INVALID_REQUEST, and the session stays usable."""
    subject = client.subject()
    await _answered_or_invalid(client, "hostile text", action=subject.written(HOSTILE))


@check(Rule.INPUT)
async def text_of_every_language_comes_back(client: CheckClient) -> None:
    """Text beyond ASCII and beyond the basic plane comes back unchanged."""
    session = await client.open(client.subject(Kind.ECHO))
    found = text_of(await session.call(Kind.ECHO, text=FOREIGN))
    expect(FOREIGN in found, f"{FOREIGN!r} came back as {found[:80]!r}")


@check(Rule.INPUT)
async def strange_ids_are_taken(client: CheckClient) -> None:
    """Ids of sessions and calls are any text: slashes, dots, blanks, other scripts, 1 KiB."""
    for name in ("../../etc/passwd", "a b;$(c)'\"\\\n", FOREIGN, "x" * 1024):
        session = await client.open(session_id=f"{client.owner}/{name}")
        expect(session.opened.session_id == session.id, f"the id {name[:20]!r} has changed")
        request = session.calling(call_id=f"0/{name}")
        first = await session.result(request)
        await session.expect_record(request, first, f"the call_id {name[:20]!r}")


@check(Rule.INPUT)
async def any_metadata_are_taken(client: CheckClient) -> None:
    """The service accepts metadata of any JSON-like shape: 20 levels, numbers outside JSON, empty
    names, 1,000 keys."""
    deep: dict[str, Any] = {"bottom": True}
    for _ in range(20):
        deep = {"inner": deep}
    metadata = wire.struct(
        {
            "deep": deep,
            "numbers": [float("nan"), float("inf"), -0.0, 1e308],
            "": None,
            "many": {str(number): number for number in range(1000)},
        }
    )
    session = await client.open(metadata=metadata)
    await session.call(metadata=metadata)


@check(Rule.INPUT)
async def bytes_that_are_no_message_are_refused(client: CheckClient) -> None:
    """Bytes that are not a protobuf message get an error, and the service keeps serving."""
    channel = client.connection.channel()
    for method in ("OpenSession", "CallTool", "RenewLeases"):
        raw = channel.unary_unary(
            f"/{SERVICE}/{method}", request_serializer=bytes, response_deserializer=bytes
        )
        try:
            await raw(b"\xff\xff\xff\xff\x0f no message", timeout=ANSWER_SECONDS)
        except grpc.aio.AioRpcError:
            continue
        raise CheckFailed(f"{method} answered bytes that are not a message")
    await ask(client.stub.ListTools, pb.ListToolsRequest())


@check(Rule.INPUT)
async def unknown_fields_are_ignored(client: CheckClient) -> None:
    """The service ignores fields of a later version of the contract."""
    session = await client.open()
    later = pb.CallToolRequest.FromString(
        session.calling().SerializeToString() + _field(4000, b"of a later version")
    )
    await session.result(later)


@check(Rule.INPUT)
async def too_deep_a_message_harms_nobody(client: CheckClient) -> None:
    """Metadata nested deeper than protobuf parses get an error or an answer, and the service keeps
    serving."""
    session = await client.open()
    struct = b""
    for _ in range(500):
        value = _field(5, struct)  # Value.struct_value
        entry = _field(1, b"inner") + _field(2, value)
        struct = _field(1, entry)  # Struct.fields
    metadata = pb.CallToolRequest.DESCRIPTOR.fields_by_name["metadata"].number
    call = session.calling().SerializeToString() + _field(metadata, struct)
    raw = client.connection.channel(session.opened.endpoint).unary_unary(
        f"/{SERVICE}/CallTool", request_serializer=bytes, response_deserializer=bytes
    )
    try:
        await raw(call, timeout=ANSWER_SECONDS)
    except grpc.aio.AioRpcError as error:
        expect(
            error.code() is not grpc.StatusCode.UNAVAILABLE, "a deep message took the service down"
        )
    await session.call()


def _field(number: int, data: bytes) -> bytes:
    """A length-delimited field on protobuf's wire. protobuf itself does not write such depths."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
