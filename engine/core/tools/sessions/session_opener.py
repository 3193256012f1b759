"""How a session comes to be opened: with patience for a service that is away, in a line before one
that is full.

Invariants
- A service that is full is waited for as long as it takes. Those who wait come in one after the
  other, in the order in which they came; only the first of them asks, again at once when one of
  this engine's sessions has ended.
- The task's media are sent where the service says that it misses them.
- On a service of the engine's own nothing is opened while it is away: its start is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import structlog

from engine.core.images.media import Media
from engine.core.time_limit import Outage, TimeLimit
from engine.core.tools.blobs import pieces
from engine.core.tools.link.counts import Counts
from engine.core.tools.link.endpoint import Endpoint
from engine.core.tools.link.retry_policy import (
    Failure,
    Kind,
    Patience,
    asked_to_wait,
    kind_of,
    name_of,
)
from engine.core.tools.process import ToolProcess
from engine.errors import OpenFailed, SessionLost, ToolServiceFailed
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import Tool as ToolTable
from toolwright.rpc.errors import ServiceError, TransportError

Message = TypeVar("Message")

OPEN_SECONDS = 60.0
FIRST_REPORT = 10.0
"""Seconds that a service is full until it is said; then at twice the time again and again."""

_MISSES = reasons.ERROR_REASON_BLOB_NOT_FOUND
_MAY_PASS = (reasons.ERROR_REASON_INTERNAL, _MISSES)
"""A fault, and media that went with a restart; the others are refusals."""

log = structlog.get_logger("tools")


class ServiceFull(Exception):
    """The service holds as many sessions as it may, and says so."""

    def __init__(self, pause: float) -> None:
        """`pause`: seconds after which it may be asked again."""
        super().__init__(pause)
        self.pause = pause


class Line:
    """Who waits for room on one service, first come, first served."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._first = asyncio.Lock()
        self._room = asyncio.Event()
        self._since = 0.0
        self._report_at = FIRST_REPORT
        self.waiting = 0

    def made_room(self) -> None:
        """A session has ended."""
        self._room.set()

    async def until_room(self, pause: float) -> None:
        """Returns when one more session may fit, after `pause` seconds at the latest."""
        full = _now() - self._since
        if full >= self._report_at:
            self._report_at *= 2
            log.warning(
                "tool_service_full",
                service=self._service,
                waiting=self.waiting,
                seconds=round(full, 1),
            )
        try:
            async with asyncio.timeout(pause):
                await self._room.wait()
        except TimeoutError:
            pass

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if not self.waiting:
            self._since = _now()
            self._report_at = FIRST_REPORT
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    async def first(self, work: Callable[[], Awaitable[Message]]) -> Message:
        """Does `work` until it does not raise ServiceFull, as the first in the line."""
        with self._counted():
            async with self._first:
                while True:
                    self._room.clear()  # before, so that what ends meanwhile is not missed
                    try:
                        return await work()
                    except ServiceFull as full:
                        await self.until_room(full.pause)


class Opener:
    """Sends the requests that open sessions on one service."""

    def __init__(
        self,
        name: str,
        table: ToolTable,
        counts: Counts,
        process: ToolProcess | None,
    ) -> None:
        """`process`: where the service is the engine's own."""
        self.line = Line(name)
        self._name = name
        self._table = table
        self._counts = counts
        self._process = process

    async def open(
        self,
        endpoint: Callable[[], Endpoint],
        send: Callable[[Endpoint], Awaitable[Message]],
        *,
        media: Sequence[Media] = (),
        clock: TimeLimit | None = None,
        queue: bool = True,
    ) -> Message:
        """What `send` returns in the end; it asks the given endpoint once.

        `media`: what the service may miss. `clock` stands still while the service is away or full.
        Not `queue`: ServiceFull at once where others wait or the service is full. SessionLost or
        ToolServiceFailed when the service refuses, or is away beyond its patience.
        """
        missing = {one.blob.sha256: one for one in media}
        patience = Patience(self._table.patience_s)
        began = _now()
        with Outage(clock) as outage:

            async def once() -> Message:
                return await self._until_told(endpoint, send, missing, patience, outage)

            if not self.line.waiting:
                try:
                    return await once()
                except ServiceFull:
                    if not queue:
                        raise
            elif not queue:
                raise ServiceFull(0.0)
            outage.noticed(began)
            return await self.line.first(once)

    async def ask(
        self, endpoint: Callable[[], Endpoint], send: Callable[[Endpoint], Awaitable[Message]]
    ) -> Message:
        """As `open`, for what needs no room."""
        patience = Patience(self._table.patience_s)
        with Outage(None) as outage:
            while True:
                try:
                    return await self._until_told(endpoint, send, {}, patience, outage)
                except ServiceFull as full:
                    await asyncio.sleep(full.pause)

    async def _until_told(
        self,
        endpoint: Callable[[], Endpoint],
        send: Callable[[Endpoint], Awaitable[Message]],
        missing: dict[str, Media],
        patience: Patience,
        outage: Outage,
    ) -> Message:
        """Tries until the service has said yes or no, or that it is full."""
        while True:
            if self._process:
                await self._process.serving()
            began = _now()
            try:
                return await self._once(endpoint(), send, missing)
            except (ServiceError, TransportError) as error:
                kind = kind_of(error)
                pause = patience.after(kind, _now(), asked_to_wait(error))
                if pause is None:
                    self._counts.failures[name_of(error)] += 1
                    raise self._end(error, kind) from error
                self._counts.retries[name_of(error)] += 1
                if kind is Kind.FULL:
                    raise ServiceFull(pause) from error
                outage.noticed(began)
                await asyncio.sleep(pause)

    async def _once(
        self,
        endpoint: Endpoint,
        send: Callable[[Endpoint], Awaitable[Message]],
        missing: dict[str, Media],
    ) -> Message:
        while True:
            try:
                return await send(endpoint)
            except ServiceError as error:
                if error.reason != _MISSES or error.subject not in missing:
                    raise
                wanted = error.subject
            await endpoint.unary(
                endpoint.stub.PutBlob, pieces(missing[wanted]), timeout=OPEN_SECONDS
            )
            del missing[wanted]  # once: who says again that it misses them is not believed

    def _end(self, error: Failure, kind: Kind) -> SessionLost | ToolServiceFailed:
        message = f"tools.{self._name}: {error}"
        if kind is Kind.LOST:
            return SessionLost(message)
        if kind is not Kind.REFUSED or isinstance(error, TransportError):
            return ToolServiceFailed(message)
        if error.reason in _MAY_PASS:
            return OpenFailed(message, service=self._name)
        return ToolServiceFailed(message, permanent=True)


def _now() -> float:
    return asyncio.get_running_loop().time()
