"""The host spoken to over gRPC: the one place where its words become protobuf and back.

Checks what comes in, converts both ways, and turns refusals into the contract's typed errors.
Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from toolsvc.errors import Reason, Refused
from toolsvc.host import Host
from toolsvc.task_blobs import BLOB_BYTES, PIECE_BYTES
from toolsvc.types import (
    ActionFormat,
    CallRequest,
    Descriptor,
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
from toolwright.rpc.errors import ServiceError, abort, answers_errors, not_served
from toolwright.rpc.options import LONGEST_WAIT
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc
from toolwright.types import BlobRef

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["ToolService"].full_name
DEFAULT_LEASE = 120.0
DEFAULT_QUEUE_LIMIT = 30.0
UPLOAD_SECONDS = 300.0
"""For all pieces of one blob to come in; until then they take their room."""
TEXT_PIECE = 1 << 16
"""Characters of one text part: below 256 KiB in any alphabet."""

_LIMIT_FIELDS = ("queue_limit", "run_limit", "wait")


class ToolServicer(tool_pb2_grpc.ToolServiceServicer):
    """toolwright.tool.v1.ToolService on a `Host`."""

    def __init__(self, host: Host, name: str) -> None:
        """`name`: of the service and its version, for ListTools."""
        self._host = host
        self._name = name

    @answers_errors
    async def ListTools(self, request: pb.ListToolsRequest, context: Any) -> pb.ListToolsResponse:
        tools = map(descriptor_to_proto, self._host.list_tools())
        return pb.ListToolsResponse(tools=tools, service=self._name)

    @answers_errors
    async def OpenSession(
        self, request: pb.OpenSessionRequest, context: Any
    ) -> pb.OpenSessionResponse:
        try:
            opened = await self._host.open(open_from_proto(request))
        except Refused as refusal:
            raise error_of(refusal) from refusal
        return pb.OpenSessionResponse(
            session_id=opened.session_id,
            tools=map(descriptor_to_proto, opened.tools),
            isolation=opened.isolation,
            queued=Duration(),
            startup=wire.duration(opened.startup),
        )

    @answers_errors
    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        try:
            answer = await self._host.call(call_from_proto(request))
        except Refused as refusal:
            raise error_of(refusal) from refusal
        response = pb.CallToolResponse()
        if isinstance(answer, Running):
            _set_seconds(response.running.queued, answer.queued)
            _set_seconds(response.running.run, answer.run)
            response.running.SetInParent()
        else:
            fill_result(response.result, answer)
        return response

    @answers_errors
    async def CancelCall(
        self, request: pb.CancelCallRequest, context: Any
    ) -> pb.CancelCallResponse:
        _require(request, "session_id")
        _require(request, "call_id")
        try:
            cancelled = self._host.cancel(request.session_id, request.call_id)
        except Refused as refusal:
            raise error_of(refusal) from refusal
        return pb.CancelCallResponse(cancelled=cancelled)

    @answers_errors
    async def RenewLeases(
        self, request: pb.RenewLeasesRequest, context: Any
    ) -> pb.RenewLeasesResponse:
        _require(request, "owner")
        leases = self._host.renew(
            request.owner, _seconds(request, "lease", DEFAULT_LEASE), request.session_ids
        )
        return pb.RenewLeasesResponse(lost=leases.lost, held=leases.held)

    @answers_errors
    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: Any
    ) -> pb.CloseSessionResponse:
        _require(request, "session_id")
        return pb.CloseSessionResponse(closed=await self._host.close(request.session_id))

    @answers_errors
    async def SnapshotSession(
        self, request: pb.SnapshotSessionRequest, context: Any
    ) -> pb.SnapshotSessionResponse:
        raise not_served("SnapshotSession")

    @answers_errors
    async def RestoreSession(
        self, request: pb.RestoreSessionRequest, context: Any
    ) -> pb.RestoreSessionResponse:
        raise not_served("RestoreSession")

    @answers_errors
    async def ForkSession(
        self, request: pb.ForkSessionRequest, context: Any
    ) -> pb.ForkSessionResponse:
        raise not_served("ForkSession")

    async def GetBlob(
        self, request: pb.GetBlobRequest, context: Any
    ) -> AsyncIterator[pb.GetBlobResponse]:
        try:
            data = await self.blob(request.sha256, context)
        except ServiceError as error:
            await abort(context, error)
        for at in range(request.offset, len(data), PIECE_BYTES):
            yield pb.GetBlobResponse(data=data[at : at + PIECE_BYTES])

    async def blob(self, sha256: str, context: Any) -> bytes:
        """What GetBlob sends. ServiceError where it is not held."""
        try:
            return self._host.blob(sha256)
        except Refused as refusal:
            raise error_of(refusal) from refusal

    @answers_errors
    async def PutBlob(
        self, request: AsyncIterator[pb.PutBlobRequest], context: Any
    ) -> pb.PutBlobResponse:
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                stored = await self._take_in(request)
        except Refused as refusal:
            raise error_of(refusal) from refusal
        except TimeoutError:
            raise _invalid("data", f"the blob took more than {UPLOAD_SECONDS:g} s") from None
        return pb.PutBlobResponse(
            blob=media_pb2.BlobRef(
                sha256=stored.sha256, media_type=stored.media_type, size=stored.size
            )
        )

    async def _take_in(self, pieces: AsyncIterator[pb.PutBlobRequest]) -> BlobRef:
        try:
            return await self._upload(pieces)
        except (Refused, ServiceError):
            # An answer before the last piece would look to the client like a cut stream.
            unread = BLOB_BYTES
            while unread > 0 and (piece := await anext(pieces, None)) is not None:
                unread -= max(1024, len(piece.data))
            raise

    async def _upload(self, pieces: AsyncIterator[pb.PutBlobRequest]) -> BlobRef:
        first = await anext(pieces, None)
        if first is None or not first.HasField("blob"):
            raise _invalid("blob", "the first message of PutBlob does not name the blob")
        with self._host.take_in(blob_from_proto(first.blob)) as upload:
            await upload.add(first.data)
            async for piece in pieces:
                if piece.HasField("blob"):
                    raise _invalid("blob", "a later message of PutBlob names a blob once more")
                await upload.add(piece.data)
            return await upload.finish()


def error_of(refusal: Refused) -> ServiceError:
    """The refusal as it travels."""
    return ServiceError(
        reason_number(refusal.reason),
        refusal.message,
        subject=refusal.subject,
        mend=refusal.mend,
        retry_after=refusal.retry_after,
    )


def reason_number(reason: Reason) -> int:
    return reasons_pb2.ErrorReason.Value(f"ERROR_REASON_{reason.value}")


def open_from_proto(request: pb.OpenSessionRequest) -> OpenRequest:
    """Refused for a missing session id or owner, or a lease that is not above 0."""
    _require(request, "session_id")
    _require(request, "owner")
    lease = _seconds(request, "lease", DEFAULT_LEASE)
    queue_limit = _seconds(request, "queue_limit", DEFAULT_QUEUE_LIMIT)
    return OpenRequest(
        session_id=request.session_id,
        owner=request.owner,
        lease=lease,
        tools=tuple(request.tools),
        metadata=wire.mapping(request.metadata),
        queue_limit=queue_limit,
        blobs=tuple(map(blob_from_proto, request.blobs)),
        digest=_digest(request, ("lease", "queue_limit")),
    )


def blob_from_proto(blob: media_pb2.BlobRef) -> BlobRef:
    return BlobRef(sha256=blob.sha256, media_type=blob.media_type, size=blob.size)


def call_from_proto(request: pb.CallToolRequest) -> CallRequest:
    """Refused for missing ids or a limit that is not above 0. A `wait` of 0 asks without
    waiting."""
    _require(request, "session_id")
    _require(request, "call_id")
    queue_limit = _seconds(request, "queue_limit", DEFAULT_QUEUE_LIMIT)
    run_limit = _seconds(request, "run_limit", 0.0) or None
    wait = _seconds(request, "wait", LONGEST_WAIT, at_least_zero=True)
    return CallRequest(
        session_id=request.session_id,
        call_id=request.call_id,
        tool=request.tool,
        action=request.action,
        arguments=wire.mapping(request.arguments) if request.HasField("arguments") else None,
        turn=request.turn,
        turns_left=request.turns_left,
        last_step=request.last_step,
        queue_limit=queue_limit,
        run_limit=run_limit,
        wait=wait,
        metadata=wire.mapping(request.metadata) if request.HasField("metadata") else {},
        digest=_digest(request, _LIMIT_FIELDS),
    )


def fill_result(out: pb.CallResult, recorded: Recorded) -> None:
    """Writes the result into its message; in place, for a message that is handed over is copied."""
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
    _set_seconds(out.queued, recorded.queued)
    _set_seconds(out.run, recorded.run)
    out.truncated = result.truncated
    out.isolation = recorded.isolation
    out.tool = recorded.tool
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
        capabilities=pb.ToolCapabilities(cancel=descriptor.cancel, media=descriptor.media),
    )


def _format_to_proto(form: ActionFormat) -> pb.ActionFormat:
    if isinstance(form, TagFormat):
        return pb.ActionFormat(
            tag=pb.TagFormat(open=form.open, close=form.close, argument=form.argument)
        )
    if isinstance(form, JsonCallFormat):
        return pb.ActionFormat(json_call=pb.JsonCallFormat(open=form.open, close=form.close))
    return pb.ActionFormat(raw=pb.RawFormat())


def _set_seconds(out: Duration, seconds: float) -> None:
    """In place; a time that is no time leaves the field set all the same."""
    whole = int(seconds)
    out.seconds, out.nanos = whole, int((seconds - whole) * 1e9)


def _digest(request: Message, without: tuple[str, ...]) -> bytes:
    """Of everything in the request that makes it this request and no other. Takes the fields
    `without` out of it, which is cheaper than a copy: nobody reads it after that."""
    for field in without:
        request.ClearField(field)
    return hashlib.blake2b(request.SerializeToString(deterministic=True), digest_size=16).digest()


def _require(request: Any, field: str) -> None:
    if not getattr(request, field):
        raise _invalid(field, f"{type(request).__name__} without {field}", f"set {field}")


def _seconds(request: Any, field: str, default: float, *, at_least_zero: bool = False) -> float:
    """A duration field, or `default` where it is not set."""
    if not request.HasField(field):
        return default
    duration: Duration = getattr(request, field)
    seconds = duration.seconds + duration.nanos * 1e-9
    if seconds < 0 or (seconds == 0 and not at_least_zero):
        raise _invalid(
            field,
            f"{type(request).__name__}.{field} is {seconds:g} s",
            "give a time above 0, or leave it out",
        )
    return seconds


def _invalid(field: str, message: str, mend: str = "") -> ServiceError:
    return ServiceError(reasons_pb2.ERROR_REASON_INVALID_REQUEST, message, subject=field, mend=mend)
