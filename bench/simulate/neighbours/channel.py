"""gRPC without a wire: the generated stubs on one side, a servicer on the other, faults between.

Invariants
- Messages of one direction of a stream arrive in order; each takes a seeded time. The receiver
  gets a copy, as it would off a wire.
- A server that dies, and a network that is cut, answer UNAVAILABLE; one that hangs, nothing.
- A request that reached the server runs there whatever becomes of its answer.
- What a dead client sends does not arrive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from bench.simulate.virtual.loop import Gone, Owner, loop_here, owner_here

TRIP_S = 0.003
"""Mean time of a message on its way."""
APART_S = 1e-9
"""Least time between two messages of one direction: the loop does not order equal timers."""


class Context:
    """As much of grpc.aio.ServicerContext as our servicers use."""

    async def abort_with_status(self, status: Any) -> None:
        raise Aborted(status)


class Aborted(grpc.aio.AbortError):  # type: ignore[misc]
    def __init__(self, status: Any) -> None:
        super().__init__(status.details)
        self.status = status


def copied(message: Any) -> Any:
    """A message as its receiver gets it. Streams of messages are passed on as they are."""
    if not isinstance(message, Message):
        return message
    return type(message).FromString(message.SerializeToString())


def rpc_error(error: Exception) -> grpc.aio.AioRpcError:
    """What a client sees of an error that a servicer, or the network, raised."""
    if isinstance(error, Aborted):
        trailers = grpc.aio.Metadata(*error.status.trailing_metadata)
        return _error(error.status.code, error.status.details, trailers)
    if isinstance(error, TimeoutError):
        return _error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
    return _error(grpc.StatusCode.UNAVAILABLE, f"the simulated server is gone ({error})")


def _error(
    code: grpc.StatusCode, details: str, trailers: grpc.aio.Metadata | None = None
) -> grpc.aio.AioRpcError:
    empty = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, empty, trailers or empty, details=details)


class Network:
    """The way to one service. cut: nothing passes, and the sender learns of it. moves: clear
    while nothing passes and no sender learns of it. loses: share of answers whose connection
    breaks before they arrive."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.server: Owner | None = None
        self.servicer: Any = None
        self.cut = False
        self.moves = asyncio.Event()
        self.moves.set()
        self.loses = 0.0
        self.slow = 1.0
        self.streams: list[Any] = []
        self.sent: Callable[[str], None] = lambda _call_id: None
        """Sees the id of each call that the engine hands over."""

    def saw(self, request: Any) -> None:
        """The engine hands a message of a stream over."""
        for one in (request, *request.more):
            self.sent(one.call.call_id)

    def serve(self, server: Owner | None, servicer: Any) -> None:
        self.server, self.servicer = server, servicer

    def gone(self) -> None:
        """The server died: so do its streams."""
        self.server = self.servicer = None
        self.break_streams()

    def client_died(self, client: Owner) -> None:
        """What it sent is on its way; then its connections end."""
        for stream in [one for one in self.streams if one.client is client]:
            stream.end()

    def break_streams(self) -> None:
        streams, self.streams = self.streams, []
        for stream in streams:
            stream.fail(ConnectionResetError("the stream broke"))

    @property
    def trip(self) -> float:
        """Seconds of one way."""
        return self.random.expovariate(1 / TRIP_S) * self.slow

    def reaches(self) -> Owner:
        """The server. ConnectionError where nothing gets there."""
        if self.cut or self.server is None:
            raise ConnectionRefusedError("no connection")
        return self.server

    def channel(self, _address: str) -> Any:
        return Channel(self)


class Channel:
    def __init__(self, network: Network) -> None:
        self._network = network

    def unary_unary(self, method: str, *_: Any, **__: Any) -> Any:
        name = method.rpartition("/")[2]

        def call(request: Any, *, timeout: float | None = None, **_: Any) -> Any:
            if name == "CallTool":
                self._network.sent(request.call_id)
            loop = asyncio.get_running_loop()
            return loop.create_task(self._unary(name, request, timeout))

        return call

    def stream_stream(self, method: str, *_: Any, **__: Any) -> Any:
        name = method.rpartition("/")[2]
        return lambda **_: _Stream(self._network, name)

    def unary_stream(self, method: str, *_: Any, **__: Any) -> Any:
        return _not_simulated(method)

    stream_unary = unary_stream

    async def close(self, _grace: float | None = None) -> None:
        pass

    async def _unary(self, name: str, request: Any, timeout: float | None) -> Any:
        try:
            async with asyncio.timeout(timeout):
                return await self._carried(name, request)
        except (ConnectionError, TimeoutError, Gone, Aborted) as error:
            raise rpc_error(error) from error

    async def _carried(self, name: str, request: Any) -> Any:
        network = self._network
        refuse_dead()
        network.reaches()
        await asyncio.sleep(network.trip)
        await network.moves.wait()
        server = network.reaches()
        answer = await server.ask(getattr(network.servicer, name)(copied(request), Context()))
        if network.random.random() < network.loses:
            raise ConnectionResetError("the answer was lost")
        await asyncio.sleep(network.trip)
        await network.moves.wait()
        network.reaches()
        return copied(answer)


def _not_simulated(method: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{method} is not simulated")

    return refuse


def refuse_dead() -> None:
    owner = owner_here()
    if owner is not None and not owner.alive:
        raise ConnectionAbortedError("this process is dead")


class Pipe:
    """One direction of a stream: in order, each message after its trip."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._messages: deque[Any] = deque()
        self._held: list[Any] = []
        """Messages that arrived while nothing passes."""
        self._arrived = asyncio.Event()
        self._last = 0.0
        self._error: Exception | None = None

    def put(self, message: Any) -> None:
        """It has no owner: it arrives even if its sender has died by then."""
        loop = loop_here()
        self._last = max(self._last + APART_S, loop.time() + self._network.trip)
        loop.call_at(self._last, self._deliver, message, context=loop.world)

    def end(self) -> None:
        """Nothing comes after what was put."""
        self.put(grpc.aio.EOF)

    def _deliver(self, message: Any) -> None:
        if self._held or not self._network.moves.is_set():
            self._held.append(message)
            if len(self._held) == 1:
                self._release_later()
            return
        self._messages.append(message)
        self._arrived.set()

    def _release_later(self) -> None:
        loop = loop_here()
        loop.call_at(loop.time() + 1.0, self._release, context=loop.world)

    def _release(self) -> None:
        if not self._network.moves.is_set():
            self._release_later()
            return
        self._messages.extend(self._held)
        self._held.clear()
        self._arrived.set()

    def fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._arrived.set()

    async def get(self) -> Any:
        """The next message. Raises what the pipe failed with, at once."""
        while True:
            if self._error is not None:
                raise self._error
            if self._messages:
                return self._messages.popleft()
            self._arrived.clear()
            await self._arrived.wait()


class _Stream:
    """A bidirectional RPC, as the client holds it; it is also the context of the servicer."""

    def __init__(self, network: Network, name: str) -> None:
        self._network = network
        self._requests = Pipe(network)
        self._answers = Pipe(network)
        self._error: Exception | None = None
        self.client = owner_here()
        try:
            refuse_dead()
            server = network.reaches()
        except ConnectionError as error:
            self.fail(error)
            return
        network.streams.append(self)
        handler = getattr(network.servicer, name)
        server.spawn(self._serve(handler))

    async def _serve(self, handler: Callable[..., Any]) -> None:
        await handler(None, _Served(self._requests, self._answer))
        if self._error is None:
            self._answers.end()

    def _answer(self, message: Any) -> None:
        if self._network.random.random() < self._network.loses:
            self.fail(ConnectionResetError("the stream broke before an answer"))
        elif self._error is None:
            self._answers.put(copied(message))

    def fail(self, error: Exception) -> None:
        """The connection breaks. Calls that reached the server go on there."""
        if self._error is None:
            self._error = error
            self._requests.fail(error)
            self._answers.fail(error)
            if self in self._network.streams:
                self._network.streams.remove(self)

    def end(self) -> None:
        """The client died."""
        self._error = ConnectionAbortedError("the client died")
        self._requests.end()
        self._network.streams.remove(self)

    async def write(self, request: Any) -> None:
        self._network.saw(request)
        if self._error is None and self._network.cut:
            self.fail(ConnectionResetError("the network is cut"))
        if self._error is not None:
            raise rpc_error(self._error)
        self._requests.put(copied(request))
        if self._network.random.random() < 0.2:  # flow control: gRPC takes a while now and then
            await asyncio.sleep(self._network.trip)

    def cancel(self) -> None:
        self.fail(ConnectionAbortedError("the client hung up"))

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._read()

    async def _read(self) -> AsyncIterator[Any]:
        while True:
            try:
                message = await self._answers.get()
            except ConnectionError as error:
                raise rpc_error(error) from error
            if message is grpc.aio.EOF:
                return
            yield message


class _Served(Context):
    """The servicer's side of a stream."""

    def __init__(self, requests: Pipe, answer: Callable[[Any], None]) -> None:
        self._requests = requests
        self._answer = answer

    async def read(self) -> Any:
        try:
            return await self._requests.get()
        except ConnectionError:
            return grpc.aio.EOF

    async def write(self, message: Any) -> None:
        self._answer(message)
