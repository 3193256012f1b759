"""One tool call: its message, its retries, its outcome.

Invariants
- The first RPC of a call is on the channel when its constructor returns.
- A call is sent again with the same call_id, and only where nothing ran or the answer was lost.
- What the policy may see is an OK answer; everything else raises AttemptFailed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import grpc
import grpc.aio
import structlog

from engine.errors import SessionLost, ToolServiceFailed
from engine.images.media import Media, blob_of, media_of
from engine.rollout.timelimit import Outage, TimeLimit
from engine.tools.spec import spec
from engine.types import Call, CallOutcome, Part, ToolSpec
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import Tool as ToolTable
from toolwright.rpc.channel import backoff, call, may_retry
from toolwright.rpc.errors import ServiceError, TransportError, from_rpc_error
from toolwright.rpc.options import LONGEST_WAIT
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import BlobRef, ToolErrorKind

if TYPE_CHECKING:
    from toolwright.tool.v1.tool_pb2_grpc import ToolServiceAsyncStub

GRACE = 5.0
"""Seconds that an RPC's deadline is above the limits inside it."""
CANCEL_SECONDS = 5.0

_LOST = (
    reasons.ERROR_REASON_SESSION_LOST,
    reasons.ERROR_REASON_SESSION_NOT_FOUND,
    reasons.ERROR_REASON_SESSION_CLOSED,
)

_OUT_OF_REACH = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

log = structlog.get_logger("tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlace:
    """Where in the trajectory a call stands."""

    call_id: str
    turn: int
    turns_left: int


class Place(Protocol):
    """Where a session is held, as its calls need to know it."""

    session_id: str
    cancels: bool
    """The service takes CancelCall."""

    @property
    def name(self) -> str:
        """Of the service in the recipe."""

    @property
    def table(self) -> ToolTable: ...

    @property
    def stub(self) -> ToolServiceAsyncStub:
        """Of the endpoint that holds the session now."""

    def move(self, endpoint: str) -> None:
        """From here on the session is at `endpoint`."""

    def gain(self, tools: Sequence[ToolSpec]) -> None:
        """The session has more tools from here on."""

    async def check_reach(self) -> None:
        """ToolServiceFailed when nobody answers at the endpoint."""


class PendingCall:
    """A call in flight.

    The constructor raises TypeError, ValueError, OverflowError or MessageError for arguments that
    no message can hold.
    """

    def __init__(self, place: Place, request: Call, where: CallPlace) -> None:
        self.place = place
        table = place.table
        self._wait = min(table.run_limit_s + table.queue_limit_s, LONGEST_WAIT)
        self._message = pb.CallToolRequest(
            session_id=place.session_id,
            call_id=where.call_id,
            tool=request.tool,
            action=request.action,
            turn=where.turn,
            turns_left=where.turns_left,
            last_step=where.turns_left == 0,
            queue_limit=wire.duration(table.queue_limit_s),
            run_limit=wire.duration(table.run_limit_s),
            wait=wire.duration(self._wait),
        )
        if request.arguments is not None:
            self._message.arguments.CopyFrom(wire.struct(request.arguments))
            # Readers stop at a hundred levels, writers do not: find it here.
            pb.CallToolRequest.FromString(self._message.SerializeToString())
        self.settled = False
        """It has an outcome, or none will come."""
        self._sent_at = 0.0
        self._rpc = self._send()
        self.dispatched_ns = time.monotonic_ns()

    def _send(self) -> grpc.aio.UnaryUnaryCall[pb.CallToolRequest, pb.CallToolResponse]:
        self._sent_at = asyncio.get_running_loop().time()
        return self.place.stub.CallTool(self._message, timeout=self._wait + GRACE)

    async def result(self, limit: TimeLimit | None = None) -> CallOutcome:
        """SessionLost or ToolServiceFailed when the policy must not see the outcome.

        `limit` stands still while the service is out of reach.
        """
        with Outage(limit) as outage:
            return await self._result(outage)

    async def _result(self, outage: Outage) -> CallOutcome:
        failures = 0
        moved = False
        while True:
            try:
                answer = await self._rpc
            except grpc.aio.AioRpcError as rpc_error:
                error = from_rpc_error(rpc_error)
                failures += 1
                if error.code in _OUT_OF_REACH:
                    outage.noticed(self._sent_at)
                else:
                    outage.over()
                endpoint = "" if moved else _right_endpoint(error)
                again = endpoint or may_retry(error)
                if failures > self.place.table.max_retries or not again:
                    self.settled = isinstance(error, ServiceError)
                    raise self._failed(error) from rpc_error
                if endpoint:
                    moved = True
                    self.place.move(endpoint)
                else:
                    await asyncio.sleep(backoff(failures - 1, error))
            else:
                outage.over()
                if answer.HasField("result"):
                    self.settled = True
                    found = outcome(answer.result, self.place.name)
                    self.place.gain(found.new_tools)
                    return found
            self._rpc = self._send()

    async def cancel(self) -> None:
        """Stops it at the service, whose session goes on. Never raises: a session's end stops its
        calls too."""
        self._rpc.cancel()
        if self.settled or not self.place.cancels:
            return
        self.settled = True
        request = pb.CancelCallRequest(
            session_id=self._message.session_id, call_id=self._message.call_id
        )
        try:
            await call(self.place.stub.CancelCall, request, timeout=CANCEL_SECONDS)
        except (ServiceError, TransportError) as error:
            log.info("cancel_failed", call=request.call_id, error=str(error))

    def _failed(self, error: ServiceError | TransportError) -> SessionLost | ToolServiceFailed:
        lost = isinstance(error, ServiceError) and error.reason in _LOST
        return (SessionLost if lost else ToolServiceFailed)(f"tools.{self.place.name}: {error}")


def _right_endpoint(error: ServiceError | TransportError) -> str:
    """Where the session is, if that is what the error says."""
    if isinstance(error, ServiceError) and error.reason == reasons.ERROR_REASON_WRONG_ENDPOINT:
        return error.endpoint
    return ""


def refused(reason: str, kind: ToolErrorKind = ToolErrorKind.INVALID_ACTION) -> CallOutcome:
    """What the policy gets for an action that went to no service."""
    return CallOutcome(text="", valid=False, invalid_reason=reason, error=kind)


def outcome(result: pb.CallResult, service: str) -> CallOutcome:
    """The engine's view of a recorded result of `service`.

    A failure that shows nothing is shown by its message.
    """
    parts = tuple(_part(part) for part in result.observation)
    failed = result.HasField("error")
    return CallOutcome(
        text="".join(part if isinstance(part, str) else named(part) for part in parts)
        or result.error.message,
        parts=() if all(isinstance(part, str) for part in parts) else parts,
        valid=result.valid,
        invalid_reason=result.invalid_reason,
        done=result.done,
        reward=result.reward if result.HasField("reward") else None,
        error=ToolErrorKind(result.error.kind) if failed else ToolErrorKind.NONE,
        session_lost=result.error.session_lost,
        metrics=dict(result.metrics),
        truncated=result.truncated,
        isolation=result.isolation,
        tool=result.tool,
        new_tools=tuple(spec(tool, service) for tool in result.new_tools),
        queued_s=result.queued.ToTimedelta().total_seconds(),
        run_s=result.run.ToTimedelta().total_seconds(),
    )


def named(part: Media | BlobRef) -> str:
    """Media in a text."""
    return f"[{blob_of(part).media_type}]"


def _part(part: pb.ObservationPart) -> Part:
    kind = part.WhichOneof("content")
    if kind == "media":
        return media_of(part.media.data, part.media.media_type)
    if kind == "blob":
        return wire.blob_from_proto(part.blob)
    return part.text
