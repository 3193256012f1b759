"""Converts the host's types to protobuf and back; pure. No other module does that.

Requests are checked here, and refused with the contract's errors.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from toolsvc.errors import Reason, Refused
from toolsvc.types import (
    ActionFormat,
    CallRequest,
    Descriptor,
    ForkRequest,
    JsonCallFormat,
    Media,
    OpenRequest,
    Recorded,
    Running,
    TagFormat,
    Text,
)
from toolwright import wire
from toolwright.common.v1 import media_pb2, reasons_pb2
from toolwright.rpc.errors import ServiceError, detail_of
from toolwright.rpc.options import LONGEST_WAIT
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Author, BlobRef

DEFAULT_LEASE = 120.0
DEFAULT_QUEUE_LIMIT = 30.0
LONGEST_ID = 4096
"""Maximum characters of an id."""
TEXT_PIECE = 1 << 16
"""Maximum characters of one text part: below 256 KiB in any alphabet."""

_NOT_DIGESTED = ("queue_limit", "run_limit", "wait", "fence")
"""Fields in which two requests of one call may differ."""


def error_of(refusal: Refused) -> ServiceError:
    """The refusal as an error for the wire."""
    return ServiceError(
        reason_number(refusal.reason),
        refusal.message,
        subject=refusal.subject,
        fix=refusal.fix,
        retry_after=refusal.retry_after,
    )


def reason_number(reason: Reason) -> int:
    return reasons_pb2.ErrorReason.Value(f"ERROR_REASON_{reason.value}")


def open_from_proto(request: pb.OpenSessionRequest) -> OpenRequest:
    """Raises Refused for a missing session id or owner, or a lease that is not above 0."""
    require(request, "session_id")
    require(request, "owner")
    lease = seconds_of(request, "lease", DEFAULT_LEASE)
    queue_limit = seconds_of(request, "queue_limit", DEFAULT_QUEUE_LIMIT)
    return OpenRequest(
        session_id=request.session_id,
        owner=request.owner,
        lease=lease,
        tools=tuple(request.tools),
        metadata=_exact(request, "metadata"),
        queue_limit=queue_limit,
        blobs=tuple(map(blob_from_proto, request.blobs)),
        digest=_digest(request, ("lease", "queue_limit")),
    )


def fork_from_proto(request: pb.ForkSessionRequest) -> ForkRequest:
    """Raises Refused as `open_from_proto` does, and for a missing parent."""
    require(request, "session_id")
    if not request.HasField("open"):
        raise invalid_field("open", "ForkSessionRequest without open", "set open")
    child = open_from_proto(request.open)
    return ForkRequest(parent=request.session_id, child=replace(child, digest=_digest(request, ())))


def _exact(request: pb.OpenSessionRequest | pb.CallToolRequest, field: str) -> dict[str, Any]:
    """A field's data with the integers that were sent. Raises Refused for text that is no JSON
    object."""
    try:
        return wire.mapping(getattr(request, field), getattr(request, f"{field}_json"))
    except ValueError as error:
        raise invalid_field(
            f"{field}_json", f"{field}_json is {error}", f"send what {field} holds, or nothing"
        ) from error


def blob_from_proto(blob: media_pb2.BlobRef) -> BlobRef:
    return BlobRef(sha256=blob.sha256, media_type=blob.media_type, size=blob.size)


def call_from_proto(request: pb.CallToolRequest) -> CallRequest:
    """Raises Refused for missing ids or a limit that is not above 0. A `wait` of 0 asks without
    waiting. Unreadable arguments do not raise: they are the policy's error."""
    require(request, "session_id")
    require(request, "call_id")
    queue_limit = seconds_of(request, "queue_limit", DEFAULT_QUEUE_LIMIT)
    run_limit = seconds_of(request, "run_limit", 0.0) or None
    wait = seconds_of(request, "wait", LONGEST_WAIT, at_least_zero=True)
    arguments, unreadable = None, ""
    if request.HasField("arguments"):
        try:
            arguments = wire.mapping(request.arguments, request.arguments_json)
        except ValueError as error:
            unreadable = f"arguments_json is {error}"
    return CallRequest(
        session_id=request.session_id,
        call_id=request.call_id,
        tool=request.tool,
        action=request.action,
        arguments=arguments,
        turn=request.turn,
        turns_left=request.turns_left,
        last_step=request.last_step,
        queue_limit=queue_limit,
        run_limit=run_limit,
        wait=wait,
        metadata=_exact(request, "metadata"),
        fence=request.fence,
        digest=_digest(request, _NOT_DIGESTED),
        unreadable=unreadable,
    )


def fill_answer(out: pb.CallToolResponse, answer: Recorded | Running) -> None:
    """Writes the answer to a call into its message."""
    if isinstance(answer, Running):
        set_seconds(out.running.queued, answer.queued)
        set_seconds(out.running.run, answer.run)
        out.running.SetInParent()
    else:
        fill_result(out.result, answer)


def fill_error(out: pb.CallError, error: ServiceError) -> None:
    """Writes an error into its message inside a stream."""
    out.code = error.code.value[0]
    out.message = error.message
    out.detail.CopyFrom(detail_of(error))
    if error.retry_after is not None:
        set_seconds(out.retry_after, error.retry_after)
        out.retry_after.SetInParent()


def fill_result(out: pb.CallResult, recorded: Recorded) -> None:
    """Writes the result into its message, in place: assigning a message to a field would copy
    it."""
    result = recorded.result
    for part in result.observation:
        if isinstance(part, Text):
            for at in range(0, len(part.text) or 1, TEXT_PIECE):
                out.observation.add().text = part.text[at : at + TEXT_PIECE]
        elif isinstance(part, Media):
            media = out.observation.add().media
            media.media_type, media.data = part.media_type, part.data
        else:
            blob = out.observation.add().blob
            blob.sha256, blob.media_type, blob.size = part.sha256, part.media_type, part.size
    out.valid = result.valid
    if result.invalid_reason:
        out.invalid_reason = result.invalid_reason
    out.done = result.done
    if result.reward is not None:
        out.reward = result.reward
    if result.metrics:
        out.metrics.update(result.metrics)
    if result.error is not None:
        out.error.kind = int(result.error.kind)  # type: ignore[assignment]
        out.error.message = result.error.message
        out.error.session_lost = result.error.session_lost
    set_seconds(out.queued, recorded.queued)
    set_seconds(out.run, recorded.run)
    out.truncated = result.truncated
    out.isolation = recorded.isolation
    out.tool = recorded.tool
    if result.author is not Author.TOOL:
        out.author = int(result.author)  # type: ignore[assignment]
    if result.token_budget:
        out.token_budget = result.token_budget
    if recorded.new_tools:
        out.new_tools.extend(map(descriptor_to_proto, recorded.new_tools))


def descriptor_to_proto(descriptor: Descriptor) -> pb.ToolDescriptor:
    return pb.ToolDescriptor(
        name=descriptor.name,
        description=descriptor.description,
        arguments_schema=wire.struct(descriptor.arguments_schema),
        output_schema=(
            None if descriptor.output_schema is None else wire.struct(descriptor.output_schema)
        ),
        usage=descriptor.usage,
        stop_strings=descriptor.stop_strings,
        action_format=_format_to_proto(descriptor.format),
        parallel_calls=descriptor.parallel_calls,
        stateful=descriptor.stateful,
        default_run_limit=wire.duration(descriptor.run_limit),
        capabilities=pb.ToolCapabilities(
            cancel=descriptor.cancel,
            media=descriptor.media,
            fork=descriptor.fork,
            fork_replays=descriptor.fork_replays,
        ),
    )


def _format_to_proto(form: ActionFormat) -> pb.ActionFormat:
    if isinstance(form, TagFormat):
        return pb.ActionFormat(
            tag=pb.TagFormat(open=form.open, close=form.close, argument=form.argument)
        )
    if isinstance(form, JsonCallFormat):
        return pb.ActionFormat(json_call=pb.JsonCallFormat(open=form.open, close=form.close))
    return pb.ActionFormat(raw=pb.RawFormat())


def set_seconds(out: Duration, seconds: float) -> None:
    """Sets the duration in place; an invalid time still leaves the field set."""
    whole = int(seconds)
    out.seconds, out.nanos = whole, int((seconds - whole) * 1e9)


def _digest(request: Message, without: tuple[str, ...]) -> bytes:
    """Digest of the request without the fields `without`. It clears these fields in the request,
    which is cheaper than a copy; the caller must not read them after that."""
    for field in without:
        request.ClearField(field)
    return hashlib.blake2b(request.SerializeToString(deterministic=True), digest_size=16).digest()


def require(request: Any, field: str) -> None:
    """Checks an id or an owner. Raises ServiceError if it is missing or too long."""
    given = getattr(request, field)
    if not given:
        raise invalid_field(field, f"{type(request).__name__} without {field}", f"set {field}")
    if len(given) > LONGEST_ID:
        raise invalid_field(
            field,
            f"{type(request).__name__}.{field} has {len(given)} characters",
            f"give one of at most {LONGEST_ID}",
        )


def seconds_of(request: Any, field: str, default: float, *, at_least_zero: bool = False) -> float:
    """A duration field, or `default` where it is not set."""
    if not request.HasField(field):
        return default
    duration: Duration = getattr(request, field)
    seconds = duration.seconds + duration.nanos * 1e-9
    if seconds < 0 or (seconds == 0 and not at_least_zero):
        raise invalid_field(
            field,
            f"{type(request).__name__}.{field} is {seconds:g} s",
            "give a time above 0, or leave it out",
        )
    return seconds


def invalid_field(field: str, message: str, fix: str = "") -> ServiceError:
    return ServiceError(reasons_pb2.ERROR_REASON_INVALID_REQUEST, message, subject=field, fix=fix)
