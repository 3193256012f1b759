"""StreamCalls: many calls of many sessions over one RPC, each answered once, in any order.

Invariants
- A request is answered once while its stream lives, by what CallTool would answer: an answer, or
  the error as a message. No error of one call ends the stream.
- A stream that ends or breaks stops no call: calls belong to their sessions. Only the answers stop.
- At most `MOST_AT_ONCE` requests are read and not yet answered. Beyond that nothing is read, and
  HTTP/2 flow control makes the caller wait.
- A call that runs here costs no task besides its own: it notifies the stream when it has ended.
- Answers that are ready together are one message, if the caller takes that.

This module does not know how a call is run; `begin` does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from toolsvc.edge.wire import error_of, fill_answer, fill_error, invalid_field
from toolsvc.errors import Refused
from toolsvc.host.open_session import RunningCall
from toolsvc.types import Recorded, Running
from toolwright.rpc.errors import ServiceError, abort, internal
from toolwright.rpc.options import LONGEST_WAIT, TOGETHER_BYTES
from toolwright.tool.v1 import tool_pb2 as pb

MOST_AT_ONCE = 4096
"""Maximum requests without an answer: four times the default sessions of a service. A waiting
request takes a few KiB. It is answered after `LONGEST_WAIT` at the latest, so that a full stream
goes on by itself."""

log = structlog.get_logger(__name__)

Outcome = Recorded | Running | Refused | ServiceError | pb.CallToolResponse


class Asked:
    """One request of a stream, until its answer is sent."""

    __slots__ = ("_outcome", "_running", "_stream", "id")

    def __init__(self, stream: CallStream, number: int) -> None:
        self.id = number
        self._stream = stream
        self._running: RunningCall | None = None
        self._outcome: Outcome | None = None

    @property
    def context(self) -> Any:
        """gRPC context of the stream's RPC."""
        return self._stream.context

    def follow(self, running: RunningCall, seconds: float) -> None:
        """Answers with the call's result, or with its state after `seconds`."""
        self._running = running
        if running.outcome is None:
            running.tell(min(seconds, LONGEST_WAIT), self)
        else:
            self()

    def work(self, doing: Coroutine[Any, Any, None]) -> None:
        """For a request that has to wait before it can begin: `doing` calls `follow` or `end`. It
        is cancelled with the stream. If it raises Refused or ServiceError, that is the answer."""
        self._stream.work(self, doing)

    def end(self, outcome: Outcome) -> None:
        """Answers with an outcome that no call of this process gives."""
        self._outcome = outcome
        self._stream.answer(self)

    def __call__(self) -> None:
        """Callback: the followed call has ended, or its wait is over."""
        self._stream.answer(self)

    @property
    def outcome(self) -> Outcome:
        if self._running is None:
            if self._outcome is None:
                raise RuntimeError("a request is answered before it has an outcome")
            return self._outcome
        return self._running.outcome or self._running.so_far()

    def forget(self) -> None:
        if self._running is not None:
            self._running.forget(self)


class CallStream:
    """One StreamCalls. `serve` once."""

    def __init__(self, begin: Callable[[Asked, pb.CallToolRequest], None], context: Any) -> None:
        """`begin`: `Servicer.begin_call`. `context`: of the RPC."""
        self.context = context
        self._begin = begin
        self._open: set[Asked] = set()
        self._answered: deque[Asked] = deque()
        self._takes_more = False
        """The caller reads several answers in a message."""
        self._something = asyncio.Event()
        """Set if an answer is ready to be sent, or the caller has sent its last request."""
        self._room = asyncio.Event()
        self._last_read = False
        self._garbage = False
        self._group = asyncio.TaskGroup()

    def __len__(self) -> int:
        """Requests that are read and not yet answered."""
        return len(self._open)

    async def serve(self) -> None:
        """Runs until the caller has sent its last request and has all its answers, or has
        disconnected. An invalid message has no request number, so it ends the stream."""
        serving = asyncio.current_task()
        if serving is None:
            raise RuntimeError("serve outside of a task")
        try:
            async with self._group:
                self._group.create_task(self._send(serving))
                try:
                    await self._read()
                except DecodeError:
                    self._garbage = True
                self._last_read = True
                self._something.set()
            if self._garbage:
                await abort(self.context, invalid_field("", "what came is no StreamCallsRequest"))
        finally:
            for asked in self._open:
                asked.forget()

    def answer(self, asked: Asked) -> None:
        self._answered.append(asked)
        self._something.set()

    def work(self, asked: Asked, doing: Coroutine[Any, Any, None]) -> None:
        self._group.create_task(self._wait_for(asked, doing))

    async def _wait_for(self, asked: Asked, doing: Coroutine[Any, Any, None]) -> None:
        try:
            await doing
        except (Refused, ServiceError) as error:
            asked.end(error)
        except Exception as error:  # A bug here: reported to the caller of this request.
            log.exception("unexpected", method="StreamCalls")
            asked.end(internal(error))

    async def _read(self) -> None:
        read = self.context.read
        while (message := await read()) is not grpc.aio.EOF:
            self._takes_more |= message.takes_more
            for request in (message, *message.more):
                asked = Asked(self, request.id)
                self._open.add(asked)
                try:
                    self._begin(asked, request.call)
                except (Refused, ServiceError) as error:
                    asked.end(error)
                except Exception as error:  # As above.
                    log.exception("unexpected", method="StreamCalls")
                    asked.end(internal(error))
                while len(self._open) >= MOST_AT_ONCE:
                    self._room.clear()
                    await self._room.wait()

    async def _send(self, serving: asyncio.Task[Any]) -> None:
        """Sends answers. Cancels `serving` once the caller has disconnected."""
        write = self.context.write
        while not (self._last_read and not self._open):
            while self._answered:
                message, sent = self._message()
                try:
                    await write(message)
                except grpc.aio.InternalError:  # The caller is gone; gRPC may say so later.
                    serving.cancel()
                    return
                self._open.difference_update(sent)
                self._room.set()
            if self._open or not self._last_read:
                self._something.clear()
                await self._something.wait()

    def _message(self) -> tuple[pb.StreamCallsResponse, list[Asked]]:
        """The next answers in a message, and their requests."""
        sent = [self._answered.popleft()]
        message = pb.StreamCallsResponse(takes_more=True)
        _fill(message, sent[0])
        size = message.ByteSize()
        while self._takes_more and self._answered and size < TOGETHER_BYTES:
            sent.append(self._answered.popleft())
            _fill(further := message.more.add(), sent[-1])
            size += further.ByteSize()
            if size > TOGETHER_BYTES:  # a large answer goes alone
                del message.more[-1]
                self._answered.appendleft(sent.pop())
        return message, sent


def _fill(message: pb.StreamCallsResponse, asked: Asked) -> None:
    message.id = asked.id
    try:
        _fill_outcome(message, asked.outcome)
    except Exception as error:  # As above: an answer that no message can hold.
        log.exception("unexpected", method="StreamCalls")
        fill_error(message.error, internal(error))


def _fill_outcome(message: pb.StreamCallsResponse, outcome: Outcome) -> None:
    if isinstance(outcome, Recorded | Running):
        fill_answer(message.answer, outcome)
    elif isinstance(outcome, pb.CallToolResponse):
        message.answer.CopyFrom(outcome)
    else:
        error = error_of(outcome) if isinstance(outcome, Refused) else outcome
        fill_error(message.error, error)
