"""One endpoint over HTTP: its list of models, and one streamed request.

Invariants
- The key is in a header and nowhere else. It is removed from the finished sentence of every error,
  and no redirect is followed.
- A stream is complete only when an event carried a finish reason. After that, and after the reader
  stopped, the client waits for the usage for a moment and no longer.
- Connecting has a deadline, and a stream has a longest silence. Only a whole event breaks it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import aiohttp
import orjson

from engine.core.sampler.openai.refusals import (
    NotFound,
    WrongAddress,
    WrongKey,
    not_the_api,
    refusal,
    without_key,
)
from engine.core.sampler.wire.client import ServerRefused, ServerSilent, ServerUnreachable
from engine.core.sampler.wire.events import WireError
from engine.core.sampler.wire.stream import QUIET_SECONDS
from toolwright.model_api.address import ApiAddress
from toolwright.model_api.deltas import Delta, Halves, read_event
from toolwright.model_api.event_stream import BYTE_ORDER_MARK, DONE, EventReader, StreamEvent
from toolwright.model_api.refused_keys import Body
from toolwright.rpc.proxies import proxy_for, shown

CONNECT_SECONDS = 10.0
MODELS_SECONDS = 20.0
USAGE_SECONDS = 2.0
"""Longest wait for the usage, which comes after the finish."""
MAX_ANSWER_BYTES = 4 * 2**20
MAX_ERROR_BYTES = 64 * 2**10
MAX_EMPTY_EVENTS = 20_000
"""Events in a row without text; a server that queues sends comments, not events."""
_FIRST_BYTES = 4096
"""Bytes that are read of a response that is not a stream: enough to describe it."""

_STREAM_HEADS = (b"data:", b"event:", b"error:", b"id:", b"retry:", b":")

OnDelta = Callable[[Delta, int], bool]
"""(delta, ns when its bytes were read) -> go on reading."""
OnQuiet = Callable[[float], None]
"""Called with the event loop's time since which nothing came, once a silence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """A model that an endpoint lists."""

    name: str
    owned_by: str
    longest: int | None
    """Tokens of its context; None if the server does not report it."""


class ApiClient:
    """HTTP to one endpoint. The owner of the shared `session` closes it; it must not decompress."""

    def __init__(
        self,
        url: str,
        session: aiohttp.ClientSession,
        *,
        key: str,
        key_env: str,
        model: str,
        silence: float,
    ) -> None:
        self._address = ApiAddress(url)
        self.url = self._address.base
        """Name of the endpoint, as the recipe spells it with the API's version."""
        self._proxy = proxy_for(url)
        self._session = session
        self._key = key
        self._key_env = key_env
        self._model = model
        self._silence = silence
        self._headers = {"Accept-Encoding": "identity"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    async def models(self) -> list[ListedModel] | None:
        """Models that the endpoint serves; None if it has no such list. Raises the errors of
        `stream`."""
        first, *others = self._address.urls("/models")
        found = await self._models_at(first)
        for where in others if found is None else ():
            # A guessed address may answer anything.
            with suppress(ServerUnreachable, ServerRefused, WireError):
                found = await self._models_at(where)
        return found

    async def _models_at(self, where: str) -> list[ListedModel] | None:
        limit = aiohttp.ClientTimeout(total=MODELS_SECONDS, sock_connect=CONNECT_SECONDS)
        async with self._engine_errors(where):
            async with self._session.get(
                where,
                headers=self._headers,
                timeout=limit,
                allow_redirects=False,
                proxy=self._proxy,
            ) as response:
                body = await _start(response, MAX_ANSWER_BYTES)
                if response.status in (404, 405, 501) and not _is_page(response):
                    return None
                self._check(where, response, body)
            return _listed(where, response, body)

    async def stream(
        self,
        path: str,
        body: Body,
        on_delta: OnDelta,
        on_quiet: OnQuiet | None = None,
        *,
        linger: bool = False,
    ) -> None:
        """Passes on every delta as its bytes are read, until finish and usage came or `on_delta`
        returned False. linger: then also wait a moment for the usage, because the server knows
        where to end.

        Raises ServerUnreachable if the stream breaks, ServerSilent if it falls silent, RetryLater
        if the server is busy. Raises WireError if the stream is malformed or holds an error,
        ServerRefused if the server does not take the request.
        """
        first: NotFound | WrongAddress | WrongKey | None = None
        for where in self._address.urls(path):
            try:
                await self._stream_at(where, path, body, on_delta, on_quiet, linger=linger)
            except (NotFound, WrongAddress) as error:
                first = first or error
            except WrongKey as error:
                raise first or error from None  # a guessed address may belong to anyone
            else:
                return
        assert first is not None  # an address has at least one URL
        raise first

    async def _stream_at(
        self,
        where: str,
        path: str,
        body: Body,
        on_delta: OnDelta,
        on_quiet: OnQuiet | None,
        *,
        linger: bool,
    ) -> None:
        reading = _Reading(on_delta, on_quiet, self._silence, linger=linger)
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        headers = {
            **self._headers, "Accept": "text/event-stream", "Content-Type": "application/json",
        }  # fmt: skip
        async with self._engine_errors(where):
            try:
                async with (
                    reading.deadline(),
                    self._session.post(
                        where,
                        data=orjson.dumps(body),
                        headers=headers,
                        timeout=limit,
                        allow_redirects=False,
                        proxy=self._proxy,
                    ) as response,
                ):
                    if response.status not in (200, 401, 403, 404, 405) and not _is_page(response):
                        self._address.found(where, path)
                    if response.status != 200:
                        self._check(where, response, await _start(response, MAX_ERROR_BYTES))
                    await reading.read(where, response)
            except TimeoutError as error:
                if isinstance(
                    error, aiohttp.ServerTimeoutError
                ):  # the connection, not a silent stream
                    raise
                if reading.over:  # only its usage was missing
                    return
                raise ServerSilent(f"{where}: silent for {self._silence:g} s") from error
            if not reading.over:
                raise ServerUnreachable(f"{where}: the stream ended without a finish reason")
            self._address.found(where, path)

    def _check(self, where: str, response: aiohttp.ClientResponse, body: bytes) -> None:
        if response.status != 200:
            raise refusal(
                where,
                response.status,
                response.headers,
                body,
                key_env=self._key_env,
                model=self._model,
            )

    @asynccontextmanager
    async def _engine_errors(self, where: str) -> AsyncIterator[None]:
        """Turns failures into the engine's errors, without the key."""
        try:
            yield
        except (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError) as error:
            raise ServerUnreachable(self._clean(f"{where}: {self._plainly(error)}")) from None
        except TimeoutError:
            raise ServerUnreachable(f"{where}: no answer in time{self._through()}") from None
        except (ServerUnreachable, ServerRefused, WireError) as error:
            message = str(error)
            named = message if message.startswith(where) else f"{where}: {message}"
            # The type decides what follows, so it stays. A cause would show the bytes with the key.
            error.args = (self._clean(named),)
            raise error from None
        except ValueError as error:  # aiohttp's error for a URL or header that cannot be sent
            raise ServerRefused(self._clean(f"{where}: {error}")) from None

    def _plainly(self, error: Exception) -> str:
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return f"the proxy answered {error.status}{self._through()}"
        return f"{_plainly(error)}{self._through()}"

    def _through(self) -> str:
        if self._proxy is None:
            return ""
        return (
            f", through the proxy {shown(self._proxy)} of the environment; add the host to "
            "no_proxy if it is reached directly"
        )

    def _clean(self, text: str) -> str:
        return without_key(text, self._key)


class _Reading:
    """One response while it is read."""

    def __init__(
        self, on_delta: OnDelta, on_quiet: OnQuiet | None, silence: float, *, linger: bool
    ) -> None:
        self.over = False
        """The finish came, or the reader stopped."""
        self._on_delta = on_delta
        self._on_quiet = on_quiet
        self._silence = silence
        self._linger = linger
        self._halves = Halves()
        self._brought = False
        self._usage = False
        self._empty = 0
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._told_quiet = False
        self._limit: asyncio.Timeout | None = None
        self._look_at: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        """Raises TimeoutError after the longest silence. Calls `on_quiet` before that."""
        self._heard = self._loop.time()
        self._look_at = self._loop.call_later(QUIET_SECONDS, self._look)
        try:
            async with asyncio.timeout(self._silence) as self._limit:
                yield
        finally:
            self._look_at.cancel()

    def _look(self) -> None:
        quiet = self._loop.time() - self._heard
        if quiet >= QUIET_SECONDS and not self._told_quiet and not self.over:
            self._told_quiet = True
            if self._on_quiet is not None:
                self._on_quiet(self._heard)
        self._look_at = self._loop.call_later(QUIET_SECONDS, self._look)

    async def read(self, where: str, response: aiohttp.ClientResponse) -> None:
        """Reads a stream of events, or one JSON object of a server that does not stream. The
        body decides which, since some servers name another type. Raises WrongAddress for
        anything else."""
        events = EventReader()
        whole = response.content_type in ("application/json", "text/html")
        begun = False
        async for data in response.content.iter_any():
            if not begun and (head := data.removeprefix(BYTE_ORDER_MARK).lstrip()):
                begun = True
                whole = head[:1] in b"{<[" or (whole and not head.startswith(_STREAM_HEADS))
                if whole:
                    await self._read_whole(where, response, data)
                    return
            if self._take(events.feed(data)):
                return
        if whole:
            raise not_the_api(where, response.headers, b"")
        self._take(events.end())

    async def _read_whole(self, where: str, response: aiohttp.ClientResponse, start: bytes) -> None:
        body = start + await _start(response, MAX_ANSWER_BYTES - len(start))
        if not body.removeprefix(BYTE_ORDER_MARK).lstrip().startswith((b"{", b"[")):
            raise not_the_api(where, response.headers, body[:_FIRST_BYTES])
        self._take([StreamEvent(body), StreamEvent(DONE)])

    def _take(self, events: list[StreamEvent]) -> bool:
        """Returns True if nothing more is expected."""
        read_ns = time.monotonic_ns()
        for event in events:
            if event.data == DONE:
                if not self.over and self._brought:
                    # The server says that the answer is whole, without a finish reason.
                    self.over = True
                    self._on_delta(
                        Delta(text=self._halves.join("", last=True), finish="stop"), read_ns
                    )
                return self.over
            delta = read_event(event)
            text = self._halves.join(delta.text, last=bool(delta.finish))
            delta = delta if text is delta.text else replace(delta, text=text)
            self._brought |= delta.brings
            self._hear(delta)
            self._usage |= delta.usage is not None and bool(delta.finish or self.over)
            wanted = self._on_delta(delta, read_ns)
            if not self.over and (delta.finish or not wanted):
                self.over = True
                if self._limit is not None:
                    self._limit.reschedule(self._loop.time() + USAGE_SECONDS)
            if self.over and (self._usage or not (delta.finish or self._linger)):
                return True
        return False

    def _hear(self, delta: Delta) -> None:
        self._empty = 0 if delta.brings else self._empty + 1
        if self._empty > MAX_EMPTY_EVENTS:
            raise WireError(f"{self._empty} events in a row brought no text")
        self._heard, self._told_quiet = self._loop.time(), False
        if self._limit is not None and not self.over:
            self._limit.reschedule(self._heard + self._silence)


def _listed(where: str, response: aiohttp.ClientResponse, body: bytes) -> list[ListedModel]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise not_the_api(where, response.headers, body[:_FIRST_BYTES]) from None
    rows = found.get("data") if isinstance(found, dict) else None
    if not isinstance(rows, list):
        raise not_the_api(where, response.headers, body[:_FIRST_BYTES])
    return [
        ListedModel(
            name=str(row["id"]),
            owned_by=str(row.get("owned_by", "")),
            longest=longest if isinstance(longest := row.get("max_model_len"), int) else None,
        )
        for row in rows
        if isinstance(row, dict) and "id" in row
    ]


def _is_page(response: aiohttp.ClientResponse) -> bool:
    return response.content_type == "text/html"


async def _start(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The first `most` bytes of a body; the rest is not read."""
    found = bytearray()
    async for part in response.content.iter_any():
        found += part
        if len(found) >= most:
            break
    return bytes(found[:most])


def _plainly(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted here"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no such host is known here"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return "it does not speak TLS (write http:// in sampler.endpoints)"
    if isinstance(error, aiohttp.ServerTimeoutError):
        return f"no connection within {CONNECT_SECONDS:g} s"
    if isinstance(error, aiohttp.ClientResponseError):
        return "it answers, but not in HTTP"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return f"no connection: {os.strerror(error.os_error.errno).lower()}"
    return f"the connection ended inside the response ({type(error).__name__})"
