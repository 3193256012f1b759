"""Converts another service's messages to this service's types: the inverse of `toolsvc.edge.wire`;
pure."""

from __future__ import annotations

from collections.abc import Iterator

from toolsvc.errors import Reason, Refused, backend_down
from toolsvc.plugin.results import AUTHORS, MOST_TOKENS
from toolsvc.types import (
    ActionFormat,
    Descriptor,
    JsonCallFormat,
    Media,
    Part,
    RawFormat,
    Result,
    TagFormat,
    Text,
    ToolError,
)
from toolwright import wire
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.text.schemas import in_order
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Author, BlobRef, ToolErrorKind


def descriptor_from_proto(tool: pb.ToolDescriptor) -> Descriptor:
    return Descriptor(
        name=tool.name,
        description=tool.description,
        usage=tool.usage,
        arguments_schema=in_order(wire.mapping(tool.arguments_schema)),
        output_schema=wire.mapping(tool.output_schema) if tool.HasField("output_schema") else None,
        stop_strings=tuple(tool.stop_strings),
        format=_format_from_proto(tool.action_format),
        stateful=tool.stateful,
        parallel_calls=tool.parallel_calls,
        run_limit=tool.default_run_limit.ToNanoseconds() / 1e9 or 30.0,
        media=tool.capabilities.media,
        cancel=tool.capabilities.cancel,
        fork=tool.capabilities.fork,
        fork_replays=tool.capabilities.fork_replays,
    )


def result_from_proto(result: pb.CallResult) -> Result:
    """The result; large media are still references."""
    return Result(
        observation=tuple(_parts(result)),
        valid=result.valid,
        invalid_reason=result.invalid_reason,
        done=result.done,
        reward=result.reward if result.HasField("reward") else None,
        metrics=dict(result.metrics),
        error=_error_from_proto(result.error) if result.HasField("error") else None,
        truncated=result.truncated,
        author=_author_from_proto(result.author),
        token_budget=min(result.token_budget, MOST_TOKENS),
    )


def refusal_from(error: ServiceError | TransportError, who: str) -> Refused:
    """The other service's refusal, for this service's client. An unreachable service may answer a
    later call."""
    if isinstance(error, TransportError):
        return backend_down(f"{who} does not answer: {error}")
    try:
        reason = Reason(error.reason_name)
    except ValueError:
        reason = Reason.BACKEND_DOWN
    return Refused(
        reason,
        f"{who}: {error.message}",
        subject=error.subject,
        fix=error.fix,
        retry_after=error.retry_after,
    )


def _parts(result: pb.CallResult) -> Iterator[Part]:
    for part in result.observation:
        kind = part.WhichOneof("content")
        if kind == "text":
            yield Text(text=part.text)
        elif kind == "media":
            yield Media(media_type=part.media.media_type, data=part.media.data)
        elif kind == "blob":
            blob = part.blob
            yield BlobRef(sha256=blob.sha256, media_type=blob.media_type, size=blob.size)


def _author_from_proto(number: int) -> Author:
    """The author of an answer. An author that is not known here counts as the tool."""
    return next((author for author in AUTHORS if author == number), Author.TOOL)


def _error_from_proto(error: pb.ToolError) -> ToolError:
    return ToolError(
        kind=ToolErrorKind(error.kind), message=error.message, session_lost=error.session_lost
    )


def _format_from_proto(form: pb.ActionFormat) -> ActionFormat:
    if form.HasField("tag"):
        return TagFormat(open=form.tag.open, close=form.tag.close, argument=form.tag.argument)
    if form.HasField("json_call"):
        return JsonCallFormat(open=form.json_call.open, close=form.json_call.close)
    return RawFormat()
