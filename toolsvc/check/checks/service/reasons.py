"""Rule 5: every refusal is a google.rpc.Status with an ErrorDetail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, changed, refused
from toolsvc.check.connection import ask
from toolsvc.check.types import Rule, expect
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb


@check(Rule.REASONS)
async def a_missing_field_is_named(client: CheckClient) -> None:
    """A request without a session id, a call id or an owner is INVALID_REQUEST with the field as
    its subject."""
    session = await client.open()
    stub = session.stub
    wrong: list[tuple[str, Callable[..., Any], Message]] = [
        ("session_id", stub.OpenSession, client.opening(session_id="")),
        ("owner", stub.OpenSession, client.opening(owner="")),
        ("session_id", stub.CallTool, session.calling(session_id="")),
        ("call_id", stub.CallTool, session.calling(call_id="")),
        ("session_id", stub.CloseSession, pb.CloseSessionRequest()),
        ("owner", stub.RenewLeases, pb.RenewLeasesRequest(lease=wire.duration(1))),
    ]
    for field, method, request in wrong:
        doing = f"{type(request).__name__} without {field}"
        refusal = await refused(ask(method, request), "INVALID_REQUEST", doing=doing)
        expect(refusal.subject == field, f"{doing} is refused for {refusal.subject or 'nothing'}")


@check(Rule.REASONS)
async def refusals_name_their_subject(client: CheckClient) -> None:
    """A refusal names its session, call id or tool, and has a message."""
    session = await client.open()
    stranger = f"{session.id}/never-opened"
    request = session.calling()
    await session.result(request)
    reused = changed(request, turns_left=request.turns_left + 1)
    wrong = [
        ("SESSION_NOT_FOUND", stranger, session.calling(session_id=stranger)),
        ("UNKNOWN_TOOL", "no-such-tool", session.calling(tool="no-such-tool")),
        ("CALL_ID_REUSED", request.call_id, reused),
    ]
    for reason, subject, wrong_request in wrong:
        refusal = await refused(
            session.send(wrong_request), reason, doing=f"a request for {reason}"
        )
        expect(refusal.subject == subject, f"{reason} names the subject {refusal.subject!r}")
        expect(refusal.message, f"{reason} has no message")


@check(Rule.REASONS)
async def what_never_helps_is_not_invited(client: CheckClient) -> None:
    """A refusal that no retry can change comes without RetryInfo."""
    session = await client.open()
    refusal = await refused(
        session.send(session.calling(tool="no-such-tool")),
        "UNKNOWN_TOOL",
        doing="a call for an unknown tool",
    )
    expect(refusal.retry_after is None, "UNKNOWN_TOOL invites a retry")


@check(Rule.REASONS)
async def what_is_not_announced_is_not_served(client: CheckClient) -> None:
    """SnapshotSession, RestoreSession and ForkSession are UNIMPLEMENTED with the reason NOT_SERVED
    if no tool has the capability."""
    capabilities = [subject.descriptor.capabilities for subject in client.subjects]
    session = await client.open()
    stub, opening = session.stub, client.opening()
    optional: list[tuple[str, bool, Callable[..., Any], Message]] = [
        (
            "SnapshotSession",
            any(one.snapshot for one in capabilities),
            stub.SnapshotSession,
            pb.SnapshotSessionRequest(session_id=session.id),
        ),
        (
            "RestoreSession",
            any(one.snapshot for one in capabilities),
            stub.RestoreSession,
            pb.RestoreSessionRequest(open=opening),
        ),
        (
            "ForkSession",
            any(one.fork for one in capabilities),
            stub.ForkSession,
            pb.ForkSessionRequest(session_id=session.id, open=opening),
        ),
    ]
    for name, announced, method, request in optional:
        if not announced:
            await refused(ask(method, request), "NOT_SERVED", doing=f"{name}, not announced")
