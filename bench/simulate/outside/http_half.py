"""The ingress's HTTP worker without sockets: a connection leads to its own calls, links and texts.

Invariants
- A connection that is cut cancels its handler, as the HTTP server does.
- A worker that dies takes its connections along, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from random import Random
from typing import Any

import orjson

from bench.simulate.neighbours.channel import APART_S, TRIP_S
from bench.simulate.neighbours.ingress_channel import IngressNetwork
from bench.simulate.virtual.loop import Owner, loop_here
from ingress.config import IngressTable
from ingress.dialects.chat import CHAT
from ingress.errors import ApiError
from ingress.http.refusals import api_error
from ingress.link import BrokenOrder, CallLost, EngineLink
from ingress.model_call import Text, prepare
from ingress.text.tails import Tails
from ingress.text.workers import Result, TextWorkers
from ingress.types import Begun, CallEnd, ModelRequest, Said
from toolwright.rpc.errors import ServiceError, TransportError

BUSY, LONGEST_BUSY_S = 0.1, 3.0
"""Share of texts that wait for a thread, and the longest wait, in seconds."""
LONGEST_CUT_S = 3.0
"""A connection that is cut breaks within so many seconds."""


class HttpHalf:
    """One worker."""

    def __init__(self, number: int, network: IngressNetwork, text: Text) -> None:
        self.owner = Owner(loop_here(), f"http {number}")
        self._link = EngineLink(network.channel())
        self._text = text
        self._table = IngressTable(address="127.0.0.1:0")

    async def handle(
        self, body: bytes, key: str, *, retry: bool, send: Callable[[Said | CallEnd], None]
    ) -> None:
        """Answers one request. Raises ApiError."""
        try:
            call = await prepare(_read, body, self._text, self._table, self._link, key=key)
            async with aclosing(call.events(self._link, agent="", retry=retry)) as events:
                async for event in events:
                    if not isinstance(event, Begun):
                        send(event)
        except (ServiceError, TransportError, CallLost, BrokenOrder) as error:
            raise api_error(error) from error


class BusyWorkers(TextWorkers):
    """Threads that other requests keep busy now and then."""

    def __init__(self, tails: Tails, random: Random) -> None:
        super().__init__(lambda: tails, 1)
        self._random = random

    async def run(self, work: Callable[[Tails], Result], lane: str) -> Result:
        if self._random.random() < BUSY:
            await asyncio.sleep(self._random.uniform(0.0, LONGEST_BUSY_S))
        return await super().run(work, lane)


def _read(body: bytes) -> ModelRequest:
    return CHAT.read(orjson.loads(body))


class AgentRequest:
    """One request as its client holds it. cuts: share of requests whose connection breaks."""

    def __init__(
        self, half: HttpHalf, random: Random, body: Any, key: str, *, retry: bool, cuts: float
    ) -> None:
        self._half = half
        self._random = random
        self._arrived = asyncio.Queue[Said | CallEnd | Exception]()
        self._last = 0.0
        self.began = False
        """A piece of the response came."""
        loop = loop_here()
        data = orjson.dumps(body)
        self._task = half.owner.spawn(half.handle(data, key, retry=retry, send=self._send))
        self._task.add_done_callback(self._ended)
        if random.random() < cuts:
            after = random.uniform(0.0, LONGEST_CUT_S) * random.random()
            loop.call_later(after, self.cut, context=loop.world)

    async def end(self) -> CallEnd:
        """The whole response. Raises ConnectionError or ApiError."""
        while True:
            coming = asyncio.ensure_future(self._arrived.get())
            either: list[asyncio.Future[Any]] = [coming, self._half.owner.gone]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                raise ConnectionResetError("the HTTP worker died")
            event = coming.result()
            if isinstance(event, Exception):
                raise event
            if isinstance(event, CallEnd):
                return event
            self.began = True

    def cut(self) -> None:
        self._put(ConnectionResetError("the connection was cut"))
        self._task.cancel()

    def _send(self, event: Said | CallEnd) -> None:
        self._put(event)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, ApiError):
            self._put(error)
        elif error is not None:
            self._put(AssertionError(f"the HTTP worker failed: {error!r}"))
        elif task.cancelled():
            self._put(ConnectionResetError("the connection was closed"))

    def _put(self, event: Said | CallEnd | Exception) -> None:
        """It arrives after its trip, in order."""
        loop = loop_here()
        self._last = max(self._last + APART_S, loop.time() + self._random.expovariate(1 / TRIP_S))
        loop.call_at(self._last, self._arrived.put_nowait, event, context=loop.world)
