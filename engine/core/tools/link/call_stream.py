"""One StreamCalls to an endpoint, shared by all calls of all sessions there.

Invariants
- gRPC has a request when `send` returns, if no earlier one is still being written. Otherwise the
  request follows in order, without a turn of the event loop in between.
- Requests that wait for an earlier one are written in one message, if the service takes that.
- Each request is answered or fails once, unless its sender forgets it.
- When the stream ends, `on_end` gets all waiting requests with the reason. The calls themselves go
  on at the service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import grpc.aio

from engine.core.tools.link.retry_policy import Failure
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError, TransportError, from_rpc_error
from toolwright.rpc.options import TOGETHER_BYTES
from toolwright.tool.v1 import tool_pb2 as pb

_CODES = {code.value[0]: code for code in grpc.StatusCode}

Answered = Callable[[int, pb.CallToolResponse], None]
Failed = Callable[[int, Failure], None]


class CallStream:
    """Opened by its constructor; ends by itself or by `close`."""

    def __init__(
        self,
        rpc: grpc.aio.StreamStreamCall[pb.StreamCallsRequest, pb.StreamCallsResponse],
        *,
        on_answer: Answered,
        on_failure: Failed,
        on_end: Callable[[CallStream, Failure], None],
        before_write: Callable[[], None] | None = None,
    ) -> None:
        """on_answer, on_failure: called with the number of the request. They must not raise.
        before_write: called before each message; it may forbid the message by an error."""
        self._rpc = rpc
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._on_end = on_end
        self._before_write = before_write
        self._unsent: dict[int, pb.CallToolRequest] = {}
        self._writing = False
        self._begun = self._ended = False
        self.takes_more = False
        """Whether the service has said that it reads several requests in a message."""
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @property
    def writing(self) -> bool:
        """Whether the next request would have to wait for the one before it."""
        return self._writing

    @property
    def unsent(self) -> int:
        """Number of requests that wait to be written."""
        return len(self._unsent)

    def send(self, number: int, message: pb.CallToolRequest) -> None:
        """Sends a request. number: unique in this stream."""
        self._unsent[number] = message
        if not self._writing:
            self._write()

    def forget(self, number: int) -> None:
        """Drops a request's answer. If the request is unsent, it is never sent."""
        self._unsent.pop(number, None)

    def close(self) -> None:
        """Ends the stream without further callbacks. The calls go on at the service."""
        self._ended = True
        self._reading.cancel()
        self._rpc.cancel()

    def _write(self) -> None:
        """Writes waiting requests until gRPC has to wait itself."""
        while self._unsent and not self._ended:
            if self._before_write is not None:  # a request may have waited for long
                self._before_write()
            if not self._hand_over(self._rpc.write(self._message())):
                return

    def _message(self) -> pb.StreamCallsRequest:
        """The next waiting request, with those after it if the service takes them together."""
        message = self._next_request()
        if not self._begun:
            self._begun = message.takes_more = True
        size = message.ByteSize() if self.takes_more and self._unsent else TOGETHER_BYTES
        while self._unsent and size < TOGETHER_BYTES:
            size += next(iter(self._unsent.values())).ByteSize()
            if size < TOGETHER_BYTES:
                message.more.append(self._next_request())
        return message

    def _next_request(self) -> pb.StreamCallsRequest:
        number = next(iter(self._unsent))
        return pb.StreamCallsRequest(id=number, call=self._unsent.pop(number))

    def _hand_over(self, writing: Coroutine[Any, Any, None]) -> bool:
        """Runs `writing` to its first wait, here and now. Returns whether it has ended.

        A task would begin it at the next turn of the event loop at the earliest, on a busy loop
        milliseconds later. After a wait it goes on in the future's own callback.
        """
        try:
            future = writing.send(None)
        except StopIteration:
            self._writing = False
            return True
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.CancelledError):
            pass  # the reader gets the error as well, with its reason
        except asyncio.InvalidStateError:
            pass  # the stream has ended, as above
        else:
            self._writing = True
            future._asyncio_future_blocking = False  # as a task does when it takes over a future
            future.add_done_callback(lambda _: self._go_on(writing))
            return False
        self._writing = True  # for good: nothing can be written any more
        return False

    def _go_on(self, writing: Coroutine[Any, Any, None]) -> None:
        if self._hand_over(writing):
            self._write()

    async def _read(self) -> None:
        why: Failure
        try:
            async for message in self._rpc:
                if message is None:  # gRPC's value for bytes that are not a message
                    why = TransportError(
                        grpc.StatusCode.INTERNAL, "the answer is not a StreamCallsResponse"
                    )
                    self._rpc.cancel()
                    break
                self.takes_more |= message.takes_more
                for response in (message, *message.more):
                    if response.HasField("error"):
                        self._on_failure(response.id, error_of(response.error))
                    else:
                        self._on_answer(response.id, response.answer)
            else:
                why = TransportError(grpc.StatusCode.UNAVAILABLE, "the stream of calls ended")
        except grpc.aio.AioRpcError as error:
            why = from_rpc_error(error)
        if not self._ended:
            self._ended = True
            self._on_end(self, why)


def error_of(error: pb.CallError) -> Failure:
    """The error that CallTool would have raised."""
    code = _CODES.get(error.code, grpc.StatusCode.UNKNOWN)
    if not error.HasField("detail") or not error.detail.reason:
        return TransportError(code, error.message or "no details")
    known = error.detail.reason in reasons.ErrorReason.values()
    return ServiceError(
        error.detail.reason if known else reasons.ERROR_REASON_UNSPECIFIED,
        error.message,
        subject=error.detail.subject,
        endpoint=error.detail.endpoint,
        fix=error.detail.mend,
        retry_after=wire.seconds(error.retry_after) if error.HasField("retry_after") else None,
    )
