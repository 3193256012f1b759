"""One process of a tool service: its channel, the calls that wait for it, and its liveness.

Invariants
- gRPC has a call when `send_call` returns, unless every stream still writes an earlier one.
- Every listener gets `answered` or `failed` once, unless it withdraws.
- Calls go by StreamCalls. If that is not served they go by CallTool, and the endpoint remembers it.
- If a stream breaks by itself, its calls are sent again by CallTool. So an answer that breaks
  streams fails one call, and not its neighbours' for ever.
- An endpoint that stays silent although an answer is due is noticed and logged once. It is logged
  again when it is back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import grpc
import grpc.aio
import structlog

from engine.core.time_limit import loop_now
from engine.core.tools.link.call_stream import CallStream
from engine.core.tools.link.counts import ServiceCounts
from engine.core.tools.link.liveness import PROBE_SECONDS, Liveness, LivenessStep
from engine.core.tools.link.retry_policy import Failure
from toolwright.rpc.channel import call
from toolwright.rpc.errors import ServiceError, TransportError, from_rpc_error
from toolwright.rpc.options import MESSAGE_LIMIT
from toolwright.rpc.tool_service import stub_on
from toolwright.tool.v1 import tool_pb2 as pb

Message = TypeVar("Message")

MOST_STREAMS = 64
"""Most streams. gRPC writes one message of a stream, and reads one, in a turn of the event loop
or two. Turns are long with thousands of trajectories in flight: with 4 streams, answers took
seconds."""
MOST_BATCHED = 4
"""Most streams if the service takes several requests in a message. A write takes all that wait."""
CALLS_A_STREAM = 8
"""Calls in flight on each stream before another stream is opened."""
TICK_SECONDS = 1.0

_OUT_OF_REACH = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

log = structlog.get_logger("tools")


class CallListener(Protocol):
    """Receiver of the answer to a CallTool. Its methods must not raise."""

    def answered(self, answer: pb.CallToolResponse) -> None: ...

    def failed(self, error: Failure) -> None: ...

    def away(self, since: float) -> None:
        """The endpoint has been silent since then, on the event loop's clock."""

    def back(self) -> None:
        """The endpoint answers again; the call's answer may still take time."""


class PendingRequest:
    """One request that waits for its answer."""

    __slots__ = ("deadline", "listener", "message", "number", "sent_at", "stream", "task")

    def __init__(self, number: int, message: pb.CallToolRequest, listener: CallListener) -> None:
        self.number = number
        self.message = message
        self.listener = listener
        self.sent_at = 0.0
        self.deadline = 0.0
        self.stream: CallStream | None = None
        self.task: asyncio.Task[None] | None = None


class Endpoint:
    """A channel to one process of a service. `close` it."""

    def __init__(
        self,
        service: str,
        address: str,
        counts: ServiceCounts,
        channel: grpc.aio.Channel,
        token: str = "",
        before_request: Callable[[], None] | None = None,
    ) -> None:
        """service: its name in the recipe, for the log. channel: leads to `address`, closed with
        the endpoint. token: the bearer token that the channel adds to unary calls. before_request:
        as `ServiceLink.before_request`."""
        self.address = address
        self._service = service
        self._counts = counts
        self._channel = channel
        self._before_request = before_request
        self.stub = stub_on(channel)
        # Interceptors add the token to all other calls. In a stream they would put a queue and a
        # task between a call and the wire.
        self._bearer = (("authorization", f"Bearer {token}"),) if token else None
        self._requests: dict[int, PendingRequest] = {}
        self._last_number = 0
        self._streams: deque[CallStream] = deque()
        self._streams_served: bool | None = None
        """Whether streams are served; None until one has answered."""
        self._silence = Liveness()
        self._expecting = 0
        """Requests other than calls that wait for their answer."""
        self._ticking: asyncio.TimerHandle | None = None
        self._probe: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def calls_in_flight(self) -> int:
        return len(self._requests)

    @property
    def seconds_away(self) -> float:
        """Duration of the present outage; 0.0 if the endpoint answers."""
        since = self._silence.away_since
        return 0.0 if since is None else loop_now() - since

    def send_call(
        self, message: pb.CallToolRequest, seconds: float, listener: CallListener
    ) -> PendingRequest:
        """Sends the call now. seconds: time within which an answer must come."""
        self._last_number += 1
        self._counts.calls += 1
        request = PendingRequest(self._last_number, message, listener)
        self._requests[request.number] = request
        self._expect()
        request.sent_at = loop_now()
        request.deadline = request.sent_at + seconds
        if self._streams_served is False:
            self._send_alone(request)
        elif message.ByteSize() > MESSAGE_LIMIT - 64:
            self._send_alone(request)  # a message that is too large fails alone
        else:
            request.stream = self._free_stream()
            request.stream.send(request.number, message)
        return request

    def withdraw(self, request: PendingRequest) -> None:
        """Stops all callbacks for the request. The call itself goes on at the service."""
        if self._requests.pop(request.number, None) is None:
            return
        if request.stream is not None:
            request.stream.forget(request.number)
        if request.task is not None:
            request.task.cancel()

    async def unary(
        self,
        method: Callable[..., Awaitable[Message]],
        request: Any,
        *,
        timeout: float,
        wait: bool = False,
    ) -> Message:
        """An RPC of `stub` other than CallTool. Raises ServiceError or TransportError if it fails.

        wait: whether to wait for the connection, up to the timeout.
        """
        self._expect()
        self._expecting += 1
        send = partial(method, wait_for_ready=True) if wait else method
        try:
            answer = await call(send, request, timeout=timeout)
        except (ServiceError, TransportError) as error:
            self._failed(error)
            raise
        finally:
            self._expecting -= 1
        self._heard()
        return answer

    async def close(self) -> None:
        """Closes the channel and drops everything that waits here."""
        for request in list(self._requests.values()):
            self.withdraw(request)
        for stream in self._streams:
            stream.close()
        self._streams.clear()
        if self._ticking is not None:
            self._ticking.cancel()
        pending = [*self._tasks, *([self._probe] if self._probe else [])]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        self._counts.seconds_away += self.seconds_away
        self._silence.heard(loop_now())
        await self._channel.close(None)

    def _free_stream(self) -> CallStream:
        """A stream that writes nothing at the moment, if there may be another one. Streams take
        turns, so that answers come on all of them."""
        most = 1
        if self._streams_served:
            batched = any(stream.takes_more for stream in self._streams)
            most = MOST_BATCHED if batched else MOST_STREAMS
            if len(self._streams) < min(most, 1 + len(self._requests) // CALLS_A_STREAM):
                return self._open_stream()
        for _ in range(len(self._streams)):
            self._streams.rotate(-1)
            if not self._streams[-1].writing:
                return self._streams[-1]
        if len(self._streams) < most:
            return self._open_stream()
        return min(self._streams, key=lambda stream: stream.unsent)

    def _open_stream(self) -> CallStream:
        rpc = self.stub.StreamCalls(metadata=self._bearer)
        stream = CallStream(
            cast("Any", rpc),
            on_answer=self._stream_answered,
            on_failure=self._stream_failed,
            on_end=self._stream_ended,
            before_write=self._before_request,
        )
        self._streams.append(stream)
        return stream

    def _stream_answered(self, number: int, answer: pb.CallToolResponse) -> None:
        self._streams_served = True
        self._heard()
        if request := self._requests.pop(number, None):
            request.listener.answered(answer)

    def _stream_failed(self, number: int, error: Failure) -> None:
        self._streams_served = True
        self._heard()
        if request := self._requests.pop(number, None):
            request.listener.failed(error)

    def _stream_ended(self, stream: CallStream, why: Failure) -> None:
        self._streams.remove(stream)
        requests = [request for request in self._requests.values() if request.stream is stream]
        if why.code is grpc.StatusCode.UNIMPLEMENTED:
            self._streams_served = False
        elif why.code in _OUT_OF_REACH:
            self._failed(why)
            for request in requests:
                if self._requests.pop(request.number, None):
                    request.listener.failed(why)
            return
        else:
            log.warning(
                "call_stream_broken",
                service=self._service,
                endpoint=self.address,
                calls=len(requests),
                error=str(why),
            )
            self._streams_served = bool(
                self._streams_served
            )  # a server that breaks the first one does not count
        for request in requests:
            request.stream = None
            self._send_alone(request)

    def _send_alone(self, request: PendingRequest) -> None:
        if self._before_request is not None:
            self._before_request()
        seconds = max(0.001, request.deadline - loop_now())
        rpc = self.stub.CallTool(request.message, timeout=seconds)
        request.task = asyncio.get_running_loop().create_task(self._answer_alone(request, rpc))
        self._tasks.add(request.task)
        request.task.add_done_callback(self._tasks.discard)

    async def _answer_alone(
        self, request: PendingRequest, rpc: Awaitable[pb.CallToolResponse]
    ) -> None:
        error: Failure
        try:
            answer = await rpc
        except grpc.aio.AioRpcError as rpc_error:
            error = from_rpc_error(rpc_error)
            self._failed(error)
        else:
            self._heard()
            if answer is not None:  # gRPC's value for bytes that are not a message
                if self._requests.pop(request.number, None):
                    request.listener.answered(answer)
                return
            error = TransportError(grpc.StatusCode.INTERNAL, "the answer is not a CallToolResponse")
        if self._requests.pop(request.number, None):
            request.listener.failed(error)

    def _expect(self) -> None:
        if self._ticking is None:
            self._silence.expect(loop_now())
            self._tick_later()

    def _tick_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._ticking = loop.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        if not self._requests and not self._expecting:
            self._ticking = None
            return
        now = loop_now()
        for request in [
            request
            for request in self._requests.values()
            if request.stream and now > request.deadline
        ]:
            self.withdraw(request)
            request.listener.failed(
                TransportError(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer came in time")
            )
        step = self._silence.tick(now)
        if step is LivenessStep.AWAY:
            self._report_away("it is connected and silent")
        if step is not LivenessStep.NOTHING and self._probe is None:
            self._probe = asyncio.get_running_loop().create_task(self._send_probe())
        self._tick_later()

    async def _send_probe(self) -> None:
        """Sends a probe; any answer proves that the process lives."""
        probe = self.stub.ListTools(
            pb.ListToolsRequest(), timeout=PROBE_SECONDS, wait_for_ready=True
        )
        try:
            await probe
            self._heard()
        except grpc.aio.AioRpcError as error:
            if error.code() not in _OUT_OF_REACH:
                self._heard()
        finally:
            self._probe = None

    def _failed(self, error: Failure) -> None:
        """Handles an RPC that failed, either without any answer or with an error of the service."""
        if not isinstance(error, TransportError) or error.code not in _OUT_OF_REACH:
            self._heard()
        elif error.code is grpc.StatusCode.UNAVAILABLE and self._silence.refused(loop_now()):
            self._report_away(str(error))

    def _report_away(self, why: str) -> None:
        since = self._silence.away_since or loop_now()
        log.warning(
            "tool_service_away",
            service=self._service,
            endpoint=self.address,
            calls=len(self._requests),
            error=why,
        )
        for request in list(self._requests.values()):
            request.listener.away(max(since, request.sent_at))

    def _heard(self) -> None:
        away = self._silence.heard(loop_now())
        if away is None:
            return
        self._counts.seconds_away += away
        log.warning(
            "tool_service_back",
            service=self._service,
            endpoint=self.address,
            seconds=round(away, 1),
        )
        for request in list(self._requests.values()):
            request.listener.back()
