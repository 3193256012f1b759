"""The way of outside agents to the engine: `toolwright.ingress.v1` without a wire.

Invariants
- A connection that breaks cancels its handler in the engine, as gRPC does.
- A status arrives after the messages that the handler sent before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from random import Random
from typing import Any

import grpc.aio

from bench.simulate.neighbours.channel import (
    Aborted,
    Channel,
    Context,
    Network,
    Pipe,
    copied,
    refuse_dead,
    rpc_error,
)
from bench.simulate.virtual.loop import loop_here, owner_here

STOP_S = 1.0
"""Time that an engine which stops gives its calls, in seconds."""
MOST_MESSAGES = 12
"""A connection that is cut breaks after up to so many messages."""


class IngressNetwork(Network):
    """The way to the engine. cuts: share of calls whose connection breaks."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.cuts = 0.0

    def channel(self, _address: str = "") -> Any:
        return _IngressChannel(self)

    async def hang_up(self) -> None:
        """The engine stops: it takes no new call, and ends those in flight after `STOP_S`."""
        self.server = None
        if self.streams:
            await asyncio.sleep(STOP_S)
        self.gone()


class _IngressChannel(Channel):
    def stream_stream(self, method: str, *_: Any, **__: Any) -> Any:
        name = method.rpartition("/")[2]
        return lambda **_: BidiCall(self._network, name)


class BidiCall:
    """A bidirectional RPC, as its client holds it. Its handler is an async generator."""

    def __init__(self, network: Any, name: str) -> None:
        self.client = owner_here()
        self._network = network
        self._requests = Pipe(network)
        self._answers = Pipe(network)
        self._error: Exception | None = None
        self._task: asyncio.Task[None] | None = None
        random = network.random
        self._left = random.randint(1, MOST_MESSAGES) if random.random() < network.cuts else 0
        """Messages until the connection breaks; 0 = it does not."""
        try:
            refuse_dead()
            server = network.reaches()
        except ConnectionError as error:
            self._break(error)
            return
        network.streams.append(self)
        self._task = server.spawn(self._serve(getattr(network.servicer, name)))
        self._task.add_done_callback(self._served)

    async def _serve(self, handler: Callable[..., Any]) -> None:
        try:
            async with aclosing(handler(self._arriving(), Context())) as responses:
                async for response in responses:
                    self._count()
                    self._answers.put(copied(response))
        except Aborted as error:
            self._answers.put(error)
        else:
            self._answers.end()

    async def _arriving(self) -> AsyncIterator[Any]:
        while (request := await self._requests.get()) is not grpc.aio.EOF:
            yield request

    def _served(self, task: asyncio.Task[None]) -> None:
        if self in self._network.streams:
            self._network.streams.remove(self)
        if not task.cancelled() and isinstance(task.exception(), ConnectionError):
            return
        if task.cancelled():
            self._break(ConnectionResetError("the handler was cancelled"))

    def _count(self) -> None:
        if self._left:
            self._left -= 1
            if not self._left:
                self.fail(ConnectionResetError("the connection was cut"))

    def _break(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
            self._requests.fail(error)
            self._answers.fail(error)

    def fail(self, error: Exception) -> None:
        """The connection breaks: the client learns it now, the engine a trip later."""
        self._break(error)
        if self in self._network.streams:
            self._network.streams.remove(self)
        if self._task is not None and not self._task.done():
            loop = loop_here()
            loop.call_later(self._network.trip, self._task.cancel, context=loop.world)

    def end(self) -> None:
        """The client died."""
        self.fail(ConnectionAbortedError("the client died"))

    def cancel(self) -> None:
        self.fail(ConnectionAbortedError("the client hung up"))

    async def write(self, request: Any) -> None:
        self._count()
        if self._error is not None:
            raise rpc_error(self._error)
        self._requests.put(copied(request))

    async def read(self) -> Any:
        try:
            message = await self._answers.get()
        except ConnectionError as error:
            raise rpc_error(error) from error
        if isinstance(message, Aborted):
            raise rpc_error(message) from message
        return message

    async def done_writing(self) -> None:
        self._requests.end()
