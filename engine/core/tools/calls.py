"""One tool call: its message, its retries, its reply.

Invariants
- The request of a call is on its way when its constructor returns.
- A call is sent again with the same call_id, and only if nothing ran or the answer was lost.
- The policy may see only an OK answer; everything else raises AttemptFailed.
- A call goes on by itself: its reply is there when `done` ends, whether a caller awaits it or not.
"""

from __future__ import annotations

import asyncio
import time

from engine.core.time_limit import Outage, TimeLimit
from engine.core.tools.link.retry_policy import (
    Failure,
    FailureKind,
    RetryPolicy,
    failure_kind,
    failure_name,
    suggested_pause,
)
from engine.core.tools.replies import Reply as Reply
from engine.core.tools.replies import refused as refused
from engine.core.tools.replies import reply_of
from engine.core.tools.sessions.session import ServiceSession
from engine.errors import AttemptFailed, SessionLost, ToolServiceFailed
from engine.types import Call
from toolwright import wire
from toolwright.process.backoff import Backoff
from toolwright.recipe import Tool as ToolTable
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.rpc.options import LONGEST_WAIT
from toolwright.tool.v1 import tool_pb2 as pb

GRACE = 5.0
"""Seconds by which a request's deadline exceeds the limits inside it."""
SOON = 1.0
"""Seconds. If a service answers `running` sooner, the next request follows after `AFTER_SOON`."""
AFTER_SOON = Backoff(0.05, SOON, jitter=False)


def request_of(
    call: Call, table: ToolTable, *, session_id: str, call_id: str, turn: int, turns_left: int
) -> pb.CallToolRequest:
    """The message of a call; equal for equal arguments, in every life of the engine.

    Raises TypeError, ValueError or OverflowError for arguments that no message can hold, including
    those nested deeper than any reader follows (`wire.struct`).
    """
    message = pb.CallToolRequest(
        session_id=session_id,
        call_id=call_id,
        tool=call.tool,
        action=call.action,
        turn=turn,
        turns_left=turns_left,
        last_step=turns_left == 0,
        queue_limit=wire.duration(table.queue_limit_s),
        # Without a limit here, the service applies the tool's own.
        run_limit=None if table.run_limit_s is None else wire.duration(table.run_limit_s),
        wait=wire.duration(wait_of(table)),
    )
    if call.arguments is not None:
        message.arguments.CopyFrom(wire.struct(call.arguments))
        message.arguments_json = wire.exact_json(call.arguments)
    return message


def wait_of(table: ToolTable) -> float:
    """Longest time, in seconds, that a service may hold one request."""
    if table.run_limit_s is None:
        return LONGEST_WAIT
    return min(table.run_limit_s + table.queue_limit_s, LONGEST_WAIT)


class PendingCall:
    """A call in flight."""

    def __init__(
        self,
        session: ServiceSession,
        message: pb.CallToolRequest,
        clock: TimeLimit | None = None,
    ) -> None:
        """Sends the call. `clock` stands still while the service is unreachable or full."""
        self.session = session
        self.service = session.name
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Ends when the reply has come or will not come; never with an error of its own."""
        self.result_ns = 0
        """Time at which `done` ended, on the monotonic clock."""
        self._message = message
        self._outage = Outage(clock)
        self._retry_policy = RetryPolicy(session.table.patience_s)
        self._moved = False
        self._soon = 0
        self._reply: Reply | None = None
        self._failure: AttemptFailed | None = None
        self._open_at_service = True
        """No answer has shown that the call has ended there."""
        self._retry: asyncio.TimerHandle | None = None
        self._send()
        self.dispatched_ns = time.monotonic_ns()

    @property
    def settled(self) -> bool:
        """Whether the call has an outcome, or will never have one."""
        return self._reply is not None or self._failure is not None

    async def result(self, clock: TimeLimit | None = None) -> Reply:
        """The reply. Raises SessionLost or ToolServiceFailed if the policy must not see the
        outcome.

        clock: needed if there was no clock when the call was sent. Cancellation ends only the
        waiting.
        """
        self._outage.attach(clock)
        while not self.settled:
            if self.done.cancelled():  # by another task that awaited it directly
                self.done = asyncio.get_running_loop().create_future()
            await asyncio.shield(self.done)
        if self._failure is not None:
            raise self._failure
        if self._reply is None:
            raise AssertionError("settled without a reply")
        return self._reply

    def drop(self) -> pb.CancelCallRequest | None:
        """Gives up the call. Returns the request that stops it at the service; None if nothing runs
        there any more, or it cannot be stopped."""
        self._endpoint.withdraw(self._request)
        if self._retry is not None:
            self._retry.cancel()
        if not self.settled:
            self._settle(failure=SessionLost(f"tools.{self.service}: the session was closed"))
        if not self._open_at_service or not self.session.cancels:
            return None
        self._open_at_service = False
        return pb.CancelCallRequest(
            session_id=self._message.session_id, call_id=self._message.call_id
        )

    def answered(self, answer: pb.CallToolResponse) -> None:
        """Called by the endpoint: a result, or the news that the call still runs."""
        self._outage.over()
        self._retry_policy.answered()
        if not answer.HasField("result"):
            waited = _now() - self._request.sent_at
            self._soon = 0 if waited >= SOON else self._soon + 1
            self._send_after(AFTER_SOON.pause(self._soon) if self._soon else 0.0)
            return
        self._open_at_service = False
        try:
            reply = reply_of(answer.result, self.service)
        except (TypeError, ValueError, RecursionError) as error:
            self._settle(
                failure=ToolServiceFailed(f"tools.{self.service}: its result is invalid ({error})")
            )
            return
        self.session.add_tools(reply.new_tools)
        self._settle(reply=reply)

    def failed(self, error: Failure) -> None:
        """Called by the endpoint after a failure: sends the request again, later or elsewhere, or
        ends the call."""
        kind = failure_kind(error)
        counts = self.session.service.counts
        if isinstance(error, ServiceError) and kind is FailureKind.MOVED and not self._moved:
            self._moved = True
            counts.retries[failure_name(error)] += 1
            self.session.move(error.endpoint)
            self._send()
            return
        pause = self._retry_policy.after(kind, _now(), suggested_pause(error))
        if pause is None:
            counts.failures[failure_name(error)] += 1
            # A service that answers with an error runs nothing under this id.
            self._open_at_service = isinstance(error, TransportError)
            kind_of_end = SessionLost if kind is FailureKind.LOST else ToolServiceFailed
            self._settle(failure=kind_of_end(f"tools.{self.service}: {error}"))
            return
        counts.retries[failure_name(error)] += 1
        self._outage.noticed(self._request.sent_at)
        self._send_after(pause)

    def away(self, since: float) -> None:
        """Called by the endpoint: it has been silent since then."""
        self._outage.noticed(since)

    def back(self) -> None:
        """Called by the endpoint: it answers again."""
        self._outage.over()

    def _send_after(self, pause: float) -> None:
        if pause > 0:
            self._retry = asyncio.get_running_loop().call_later(pause, self._send)
        else:
            self._send()

    def _send(self) -> None:
        self._retry = None
        seconds = wait_of(self.session.table) + GRACE
        self._endpoint = self.session.endpoint
        self._request = self._endpoint.send_call(self._message, seconds, self)

    def _settle(self, reply: Reply | None = None, failure: AttemptFailed | None = None) -> None:
        self._outage.over()
        self._reply, self._failure = reply, failure
        self.result_ns = time.monotonic_ns()
        if not self.done.done():
            self.done.set_result(None)


def _now() -> float:
    return asyncio.get_running_loop().time()
