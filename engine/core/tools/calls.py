"""One tool call: its retries, its reply.

Invariants
- gRPC has the request of a call when its constructor returns, unless every stream to the endpoint
  still writes an earlier one.
- A call is sent again with the same call_id, and only if nothing ran or the answer was lost.
- The policy may see only an OK answer; everything else raises AttemptFailed.
- A call goes on by itself, whether a caller awaits its result or not.
- Every request of a call goes by `PendingCall._send`. `CallStream._hand_over` gives it to gRPC.
"""

from __future__ import annotations

import asyncio
import time

from engine.core.time_limit import Outage, TimeLimit, loop_now
from engine.core.tools.link.retry_policy import (
    Failure,
    FailureKind,
    RetryPolicy,
    failure_kind,
    failure_name,
)
from engine.core.tools.replies import Reply, reply_of
from engine.core.tools.requests import wait_of
from engine.core.tools.sessions.session import ServiceSession
from engine.errors import AttemptFailed, Fenced, SessionLost, ToolServiceFailed
from toolwright.process.backoff import Backoff
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.tool.v1 import tool_pb2 as pb

GRACE = 5.0
"""Seconds by which a request's deadline exceeds the limits inside it."""
SOON = 1.0
"""Seconds. If a service answers `running` sooner, the next request follows after `AFTER_SOON`."""
AFTER_SOON = Backoff(0.05, SOON, jitter=False)


_ENDS: dict[FailureKind, type[AttemptFailed | Fenced]] = {
    FailureKind.LOST: SessionLost,
    FailureKind.FENCED: Fenced,
}
"""Errors of a call by the kind of its final failure; others raise ToolServiceFailed."""


class PendingCall:
    """A call in flight."""

    def __init__(self, session: ServiceSession, message: pb.CallToolRequest) -> None:
        """Sends the call."""
        self.session = session
        self.service = session.name
        self.result_ns = 0
        """Time at which the call got its outcome, on the monotonic clock."""
        self._message = message
        self._outage = Outage(None)
        self._retry_policy = RetryPolicy(session.table.patience_s)
        self._moved = False
        self._soon = 0
        self._outcome: Reply | AttemptFailed | Fenced | None = None
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open_at_service = True
        """No answer has shown that the call has ended there."""
        self._retry: asyncio.TimerHandle | None = None
        self._send()
        self.dispatched_ns = time.monotonic_ns()

    @property
    def settled(self) -> bool:
        """Whether the call has an outcome, or will never have one."""
        return self._outcome is not None

    async def result(self, clock: TimeLimit | None = None) -> Reply:
        """The reply. Raises SessionLost or ToolServiceFailed if the policy must not see the
        outcome, and Fenced if another process has the session.

        clock: stands still while the service is unreachable or full, also before this. Cancellation
        ends only the waiting.
        """
        self._outage.attach(clock)
        while self._outcome is None:
            await asyncio.shield(self._done)
        if isinstance(self._outcome, AttemptFailed | Fenced):
            raise self._outcome
        return self._outcome

    def drop(self) -> pb.CancelCallRequest | None:
        """Gives up the call. Returns the request that stops it at the service; None if nothing runs
        there any more, or it cannot be stopped."""
        self._endpoint.withdraw(self._request)
        if self._retry is not None:
            self._retry.cancel()
        if not self.settled:
            self._settle(SessionLost(f"tools.{self.service}: the session was closed"))
        if not self._open_at_service or not self.session.cancels:
            return None
        self._open_at_service = False
        return pb.CancelCallRequest(
            session_id=self._message.session_id,
            call_id=self._message.call_id,
            fence=self._message.fence,
        )

    def answered(self, answer: pb.CallToolResponse) -> None:
        """Called by the endpoint: a result, or the news that the call still runs."""
        self._outage.over()
        self._retry_policy.answered()
        if not answer.HasField("result"):
            waited = loop_now() - self._request.sent_at
            self._soon = 0 if waited >= SOON else self._soon + 1
            self._send_after(AFTER_SOON.pause(self._soon) if self._soon else 0.0)
            return
        self._open_at_service = False
        try:
            reply = reply_of(answer.result, self.service)
        except (TypeError, ValueError, RecursionError) as error:
            self._settle(
                ToolServiceFailed(f"tools.{self.service}: its result is invalid ({error})")
            )
            return
        self.session.add_tools(reply.new_tools)
        self._settle(reply)

    def failed(self, error: Failure) -> None:
        """Called by the endpoint after a failure: sends the request again, later or elsewhere, or
        ends the call."""
        kind = failure_kind(error)
        counts = self.session.link.counts
        if isinstance(error, ServiceError) and kind is FailureKind.MOVED and not self._moved:
            self._moved = True
            counts.retries[failure_name(error)] += 1
            self.session.move(error.endpoint)
            self._send()
            return
        pause = self._retry_policy.after_failure(error, loop_now(), counts)
        if pause is None:
            # A service that answers with an error runs nothing under this id.
            self._open_at_service = isinstance(error, TransportError)
            kind_of_end = _ENDS.get(kind, ToolServiceFailed)
            self._settle(kind_of_end(f"tools.{self.service}: {error}"))
            return
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
        """Sends the request to the endpoint that holds the session now."""
        self._retry = None
        seconds = wait_of(self.session.table) + GRACE
        self._endpoint = self.session.endpoint
        self._request = self._endpoint.send_call(self._message, seconds, self)

    def _settle(self, outcome: Reply | AttemptFailed | Fenced) -> None:
        self._outage.over()
        self._outcome = outcome
        self.result_ns = time.monotonic_ns()
        self._done.set_result(None)
