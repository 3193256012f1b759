"""One process of a tool service: its channel, the calls that wait for it, and whether it is there.

Invariants
- A call is with gRPC when `ask` returns, unless every stream still writes an earlier one.
- Every asker is told once, by `answered` or `failed`, unless it withdraws.
- Calls go by StreamCalls; where that is not served, by CallTool, which is then remembered. A
  stream that breaks by itself has its calls asked again by CallTool, so that an answer that breaks
  streams fails one call and not its neighbours' for ever.
- An endpoint of which something is expected and nothing heard is noticed, logged once, and logged
  again when it is back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import grpc
import grpc.aio
import structlog

from engine.core.tools.link.counts import Counts
from engine.core.tools.link.liveness import PROBE_SECONDS, Silence, Step
from engine.core.tools.link.retry_policy import Failure
from engine.core.tools.link.stream import CallStream
from toolwright.rpc.channel import call
from toolwright.rpc.errors import ServiceError, TransportError, from_rpc_error
from toolwright.rpc.options import MESSAGE_LIMIT
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

if TYPE_CHECKING:
    from toolwright.tool.v1.tool_pb2_grpc import ToolServiceAsyncStub

Message = TypeVar("Message")

MOST_STREAMS = 64
"""gRPC writes one message of a stream, and reads one, in a turn of the event loop or two. Turns are
long where thousands of trajectories are in flight: with 4 streams, answers waited for seconds."""
CALLS_A_STREAM = 8
"""In flight, from which on there is one more stream."""
TICK_SECONDS = 1.0

_OUT_OF_REACH = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

log = structlog.get_logger("tools")


class Asker(Protocol):
    """Who waits for the answer to a CallTool. None of these may raise."""

    def answered(self, answer: pb.CallToolResponse) -> None: ...

    def failed(self, error: Failure) -> None: ...

    def away(self, since: float) -> None:
        """The endpoint says nothing since then, on the event loop's clock."""

    def back(self) -> None:
        """It is there again; the answer may take its time."""


class Ask:
    """One request that waits for its answer."""

    __slots__ = ("asker", "deadline", "message", "number", "sent_at", "stream", "task")

    def __init__(self, number: int, message: pb.CallToolRequest, asker: Asker) -> None:
        self.number = number
        self.message = message
        self.asker = asker
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
        counts: Counts,
        channel: grpc.aio.Channel,
        token: str = "",
    ) -> None:
        """`service`: its name in the recipe, for the log. `channel`: to `address`, closed with the
        endpoint. `token`: the bearer token that the channel adds to unary calls."""
        self.address = address
        self._service = service
        self._counts = counts
        self._channel = channel
        self.stub = cast("ToolServiceAsyncStub", tool_pb2_grpc.ToolServiceStub(self._channel))
        # Interceptors carry the token of all other calls; one in a stream's way would put a queue
        # and a task between a call and the wire.
        self._bearer = (("authorization", f"Bearer {token}"),) if token else None
        self._asks: dict[int, Ask] = {}
        self._last_number = 0
        self._streams: deque[CallStream] = deque()
        self._streams_served: bool | None = None
        """None until one has answered."""
        self._silence = Silence()
        self._expecting = 0
        """Requests besides calls that wait for their answer."""
        self._ticking: asyncio.TimerHandle | None = None
        self._probe: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def calls_in_flight(self) -> int:
        return len(self._asks)

    @property
    def seconds_away(self) -> float:
        """Of the outage that goes on now; 0.0 where the endpoint is there."""
        since = self._silence.away_since
        return 0.0 if since is None else _now() - since

    def ask(self, message: pb.CallToolRequest, seconds: float, asker: Asker) -> Ask:
        """Sends it now. `seconds`: after which an answer must be there."""
        self._last_number += 1
        self._counts.calls += 1
        ask = Ask(self._last_number, message, asker)
        self._asks[ask.number] = ask
        self._expect()
        ask.sent_at = _now()
        ask.deadline = ask.sent_at + seconds
        if self._streams_served is False:
            self._ask_alone(ask)
        elif message.ByteSize() > MESSAGE_LIMIT - 64:
            self._ask_alone(ask)  # what is too large fails alone
        else:
            ask.stream = self._free_stream()
            ask.stream.send(ask.number, message)
        return ask

    def withdraw(self, ask: Ask) -> None:
        """Its asker is told nothing any more. The call itself goes on at the service."""
        if self._asks.pop(ask.number, None) is None:
            return
        if ask.stream is not None:
            ask.stream.forget(ask.number)
        if ask.task is not None:
            ask.task.cancel()

    async def unary(
        self,
        method: Callable[..., Awaitable[Message]],
        request: Any,
        *,
        timeout: float,
        wait: bool = False,
    ) -> Message:
        """An RPC of `stub` other than CallTool. ServiceError or TransportError when it fails.

        `wait`: for the connection, up to the timeout.
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
        """Everything that waits here is dropped."""
        for ask in list(self._asks.values()):
            self.withdraw(ask)
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
        self._silence.heard(_now())
        await self._channel.close(None)

    def _free_stream(self) -> CallStream:
        """One that writes nothing at the moment, if there may be another; each in its turn, so that
        answers come on all of them."""
        if self._streams_served:
            most = min(MOST_STREAMS, 1 + len(self._asks) // CALLS_A_STREAM)
            if len(self._streams) < most:
                self._streams.append(self._open_stream())
                return self._streams[-1]
        for _ in range(len(self._streams)):
            self._streams.rotate(-1)
            if not self._streams[-1].writing:
                return self._streams[-1]
        most = MOST_STREAMS if self._streams_served else 1
        if len(self._streams) < most:
            self._streams.append(self._open_stream())
            return self._streams[-1]
        return min(self._streams, key=lambda stream: stream.unsent)

    def _open_stream(self) -> CallStream:
        rpc = self.stub.StreamCalls(metadata=self._bearer)
        return CallStream(
            cast("Any", rpc),
            on_answer=self._stream_answered,
            on_failure=self._stream_failed,
            on_end=self._stream_ended,
        )

    def _stream_answered(self, number: int, answer: pb.CallToolResponse) -> None:
        self._streams_served = True
        self._heard()
        ask = self._asks.pop(number, None)
        if ask is not None:
            ask.asker.answered(answer)

    def _stream_failed(self, number: int, error: Failure) -> None:
        self._streams_served = True
        self._heard()
        ask = self._asks.pop(number, None)
        if ask is not None:
            ask.asker.failed(error)

    def _stream_ended(self, stream: CallStream, why: Failure) -> None:
        self._streams.remove(stream)
        asks = [ask for ask in self._asks.values() if ask.stream is stream]
        if why.code is grpc.StatusCode.UNIMPLEMENTED:
            self._streams_served = False
        elif why.code in _OUT_OF_REACH:
            self._failed(why)
            for ask in asks:
                if self._asks.pop(ask.number, None):
                    ask.asker.failed(why)
            return
        else:
            log.warning(
                "call_stream_broken",
                service=self._service,
                endpoint=self.address,
                calls=len(asks),
                error=str(why),
            )
            self._streams_served = bool(self._streams_served)  # not by who breaks the first one
        for ask in asks:
            ask.stream = None
            self._ask_alone(ask)

    def _ask_alone(self, ask: Ask) -> None:
        seconds = max(0.001, ask.deadline - _now())
        rpc = self.stub.CallTool(ask.message, timeout=seconds)
        ask.task = asyncio.get_running_loop().create_task(self._answer_alone(ask, rpc))
        self._tasks.add(ask.task)
        ask.task.add_done_callback(self._tasks.discard)

    async def _answer_alone(self, ask: Ask, rpc: Awaitable[pb.CallToolResponse]) -> None:
        error: Failure
        try:
            answer = await rpc
        except grpc.aio.AioRpcError as rpc_error:
            error = from_rpc_error(rpc_error)
            self._failed(error)
        else:
            self._heard()
            if answer is not None:  # gRPC's word for bytes that are no message
                if self._asks.pop(ask.number, None):
                    ask.asker.answered(answer)
                return
            error = TransportError(grpc.StatusCode.INTERNAL, "the answer is no CallToolResponse")
        if self._asks.pop(ask.number, None):
            ask.asker.failed(error)

    def _expect(self) -> None:
        if self._ticking is None:
            self._silence.expect(_now())
            self._tick_later()

    def _tick_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._ticking = loop.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        if not self._asks and not self._expecting:
            self._ticking = None
            return
        now = _now()
        for ask in [ask for ask in self._asks.values() if ask.stream and now > ask.deadline]:
            self.withdraw(ask)
            ask.asker.failed(
                TransportError(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer came in time")
            )
        step = self._silence.tick(now)
        if step is Step.AWAY:
            self._noticed_away("it is connected and says nothing")
        if step is not Step.NOTHING and self._probe is None:
            self._probe = asyncio.get_running_loop().create_task(self._ask_for_a_word())
        self._tick_later()

    async def _ask_for_a_word(self) -> None:
        """Any word will do."""
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
        """An RPC came back with an error: with nothing, or with a word all the same."""
        if not isinstance(error, TransportError) or error.code not in _OUT_OF_REACH:
            self._heard()
        elif error.code is grpc.StatusCode.UNAVAILABLE and self._silence.refused(_now()):
            self._noticed_away(str(error))

    def _noticed_away(self, why: str) -> None:
        since = self._silence.away_since or _now()
        log.warning(
            "tool_service_away",
            service=self._service,
            endpoint=self.address,
            calls=len(self._asks),
            error=why,
        )
        for ask in list(self._asks.values()):
            ask.asker.away(max(since, ask.sent_at))

    def _heard(self) -> None:
        away = self._silence.heard(_now())
        if away is None:
            return
        self._counts.seconds_away += away
        log.warning(
            "tool_service_back",
            service=self._service,
            endpoint=self.address,
            seconds=round(away, 1),
        )
        for ask in list(self._asks.values()):
            ask.asker.back()


def _now() -> float:
    return asyncio.get_running_loop().time()
