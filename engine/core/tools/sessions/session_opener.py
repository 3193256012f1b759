"""Opens sessions: retries an unreachable service, and queues for a full one.

Invariants
- A full service is awaited as long as it takes. Waiting opens proceed one by one, in the order of
  their arrival. Only the first sends requests, and again at once when a session of this engine has
  ended.
- The task's media are sent if the service says that it misses them.
- While a service of the engine's own is down, nothing is opened there: its start is awaited.
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
from engine.core.tools.link.counts import ServiceCounts
from engine.core.tools.link.endpoint import Endpoint
from engine.core.tools.link.retry_policy import (
    Failure,
    FailureKind,
    RetryPolicy,
    failure_kind,
    failure_name,
    suggested_pause,
)
from engine.core.tools.process import ToolProcess
from engine.errors import OpenFailed, SessionLost, ToolServiceFailed
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import Tool as ToolTable
from toolwright.rpc.errors import ServiceError, TransportError

Message = TypeVar("Message")

OPEN_SECONDS = 60.0
FIRST_REPORT = 10.0
"""Seconds for which a service is full before the first log line. Further lines come at twice the
time again and again."""

_MISSES = reasons.ERROR_REASON_BLOB_NOT_FOUND
_MAY_PASS = (reasons.ERROR_REASON_INTERNAL, _MISSES)
"""A fault, and media that a restart lost; the other reasons are refusals."""

log = structlog.get_logger("tools")


class ServiceFull(Exception):
    """The service reports that it holds as many sessions as it may."""

    def __init__(self, pause: float) -> None:
        """pause: seconds before the next request may follow."""
        super().__init__(pause)
        self.pause = pause


class OpenQueue:
    """Queue of opens that wait for room on one service, first come, first served."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._first = asyncio.Lock()
        self._room = asyncio.Event()
        self._since = 0.0
        self._report_at = FIRST_REPORT
        self.waiting = 0

    def made_room(self) -> None:
        """Records that a session has ended."""
        self._room.set()

    async def until_room(self, pause: float) -> None:
        """Returns when one more session may fit, or after `pause` seconds."""
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
        """Repeats `work` until it does not raise ServiceFull, as the first in the queue."""
        with self._counted():
            async with self._first:
                while True:
                    self._room.clear()  # first, so that no end is missed
                    try:
                        return await work()
                    except ServiceFull as full:
                        await self.until_room(full.pause)


class SessionOpener:
    """Sends the requests that open sessions on one service."""

    def __init__(
        self,
        name: str,
        table: ToolTable,
        counts: ServiceCounts,
        process: ToolProcess | None,
    ) -> None:
        """process: set if the service is the engine's own."""
        self.line = OpenQueue(name)
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
        """The final result of `send`, which sends one request to the given endpoint.

        media: media that the service may miss. clock: stands still while the service is unreachable
        or full. Without `queue`, raises ServiceFull at once if others wait or the service is full.
        Raises SessionLost or ToolServiceFailed if the service refuses, or is unreachable beyond
        `patience_s`.
        """
        missing = {one.blob.sha256: one for one in media}
        retry_policy = RetryPolicy(self._table.patience_s)
        began = _now()
        with Outage(clock) as outage:

            async def once() -> Message:
                return await self._until_answered(endpoint, send, missing, retry_policy, outage)

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

    async def query(
        self, endpoint: Callable[[], Endpoint], send: Callable[[Endpoint], Awaitable[Message]]
    ) -> Message:
        """As `open`, for requests that need no room."""
        retry_policy = RetryPolicy(self._table.patience_s)
        with Outage(None) as outage:
            while True:
                try:
                    return await self._until_answered(endpoint, send, {}, retry_policy, outage)
                except ServiceFull as full:
                    await asyncio.sleep(full.pause)

    async def _until_answered(
        self,
        endpoint: Callable[[], Endpoint],
        send: Callable[[Endpoint], Awaitable[Message]],
        missing: dict[str, Media],
        retry_policy: RetryPolicy,
        outage: Outage,
    ) -> Message:
        """Retries until the service has accepted, refused, or reported that it is full."""
        while True:
            if self._process:
                await self._process.serving()
            began = _now()
            try:
                return await self._once(endpoint(), send, missing)
            except (ServiceError, TransportError) as error:
                kind = failure_kind(error)
                pause = retry_policy.after(kind, _now(), suggested_pause(error))
                if pause is None:
                    self._counts.failures[failure_name(error)] += 1
                    raise self._end(error, kind) from error
                self._counts.retries[failure_name(error)] += 1
                if kind is FailureKind.FULL:
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
            del missing[wanted]  # once: a service that reports them missing again is not believed

    def _end(self, error: Failure, kind: FailureKind) -> SessionLost | ToolServiceFailed:
        message = f"tools.{self._name}: {error}"
        if kind is FailureKind.LOST:
            return SessionLost(message)
        if kind is not FailureKind.REFUSED or isinstance(error, TransportError):
            return ToolServiceFailed(message)
        if error.reason in _MAY_PASS:
            return OpenFailed(message, service=self._name)
        return ToolServiceFailed(message, permanent=True)


def _now() -> float:
    return asyncio.get_running_loop().time()
