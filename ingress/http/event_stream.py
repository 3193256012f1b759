"""A response as server-sent events.

Invariants
- A stream says something at least every 3 s. An outage of the engine delays a response.
- A client that does not read its stream is cut off: its call has no reader any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

import structlog
from aiohttp import web

from ingress.dialects.types import Reply, ServerEvent
from ingress.errors import ApiError
from ingress.http.refusals import FAILURES, api_error, json_bytes, unexpected
from ingress.types import Begun, CallEnd, CallEvent

KEEP_ALIVE_SECONDS = 3.0
WRITE_SECONDS = 60.0
"""Time in which a client must read so much of a stream that the next event has room, in seconds.
"""

log = structlog.get_logger("ingress")


class EventStream:
    """One response as server-sent events."""

    def __init__(self, request: web.Request, reply: Reply) -> None:
        self._request = request
        self._reply = reply
        self._response: web.StreamResponse | None = None

    async def send(self, events: AsyncGenerator[CallEvent]) -> web.StreamResponse:
        """Sends events until the end, or until the client has left. Raises the call's errors before
        the first byte."""
        try:
            async with aclosing(_paced(events)) as paced:
                async for event in paced:
                    await self._write(self._data(event))
        except ConnectionResetError as error:
            log.debug("client left", error=str(error))
        except FAILURES as error:
            await self._fail(error, api_error)
        except Exception as error:  # noqa: BLE001 (logged)
            await self._fail(error, unexpected)
        return self._response or web.Response(status=408)  # nothing is there to read it

    def _data(self, event: CallEvent | None) -> bytes:
        """What the client gets of an event; None = a keep-alive."""
        match event:
            case None:
                return b": keep-alive\n\n"
            case Begun():
                return _lines(self._reply.begin(event.response))
            case CallEnd():
                return _lines(self._reply.end(event))
        return _lines(self._reply.said(event))

    async def _fail(self, error: Exception, named: Callable[[Exception], ApiError]) -> None:
        """Ends the stream with an event. Raises the error before the first byte."""
        if self._response is None:
            raise error
        with suppress(ConnectionResetError):
            await self._write(_lines(self._reply.failed(named(error))))

    async def _write(self, data: bytes) -> None:
        """Raises ConnectionResetError if the client has left, or does not read."""
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                if self._response is None:
                    response = web.StreamResponse(
                        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
                    )
                    await response.prepare(self._request)
                    self._response = response
                await self._response.write(data)
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionResetError("the client does not read") from None


async def _paced(
    events: AsyncGenerator[CallEvent],
) -> AsyncGenerator[CallEvent | None]:
    """The events, and None whenever there has been none for `KEEP_ALIVE_SECONDS`."""
    waiting = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            done, _ = await asyncio.wait((waiting,), timeout=KEEP_ALIVE_SECONDS)
            if not done:
                yield None
                continue
            event = waiting.result()
            if event is None:
                return
            yield event
            waiting = asyncio.ensure_future(anext(events, None))
    finally:
        waiting.cancel()
        await asyncio.wait((waiting,))


def _lines(events: list[ServerEvent]) -> bytes:
    """Server-sent events as they are written."""
    found = []
    for name, data in events:
        text = data.encode() if isinstance(data, str) else json_bytes(data)
        found.append((b"event: " + name.encode() + b"\n" if name else b"") + b"data: " + text)
    return b"".join(one + b"\n\n" for one in found)
