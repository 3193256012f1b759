"""The hot path: /generate's bytes to a callback, inside the very read that brought them.

asyncio wakes a coroutine only after every other one that became ready before it. With many streams
that tick together, the last one waits for all. So `data_received` itself passes events on, with the
time at which their bytes were read. httptools parses HTTP.

Invariants
- A connection has one request at a time. It becomes idle only after a whole response.
- Reads that take longer than `READ_NS` in one turn of the event loop leave the rest to the next
  turn. Otherwise the loop would poll a thousand ready sockets while all other work waits.
- The callback gets every event of its request in order, and none after it returned False.
- Nothing waits without bound: connecting has a deadline, a stream has a longest silence. Only a
  whole event breaks the silence, other bytes do not.
- A fault of one response (an event that is too large, an error of the callback) ends only its own
  connection.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

import httptools

from engine.core.sampler.wire.events import MAX_EVENT_BYTES, EventSplitter

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 4.0
"""Below uvicorn's keep-alive of 5 s, after which the server closes the connection."""
QUIET_SECONDS = 5.0
"""A stream without an event for so long waits for its server, not for its policy. No usable policy
takes that long for the tokens of one chunk."""
READ_NS = 5_000_000
LOOK_SECONDS = 1.0
"""Interval between checks of all streams for silence, by one timer."""
MAX_ERROR_BYTES = 64 * 2**10
"""Bytes of a refusal's body that are kept; the rest is dropped unread."""

OnEvent = Callable[[bytes, int], bool]
"""(payload of one event, ns when its bytes were read) -> go on reading."""
OnQuiet = Callable[[float], None]
"""Called with the event loop's time since which nothing came, once a silence."""


class StreamBroken(Exception):
    """The connection failed, ended, or fell silent inside a response."""


class StreamSilent(StreamBroken):
    """The connection stands, and nothing came for the longest silence."""


class StatusError(Exception):
    """The server answered with another status than 200."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:300]}")
        self.status = status
        self.text = text


def _deaf(_payload: bytes, _read_ns: int) -> bool:
    return False


class Stream:
    """A caller's handle on its own response while it is read."""

    def __init__(self, on_event: OnEvent, on_quiet: OnQuiet | None = None) -> None:
        self.on_event = on_event
        self.on_quiet = on_quiet
        self._connection: _Connection | None = None
        self._ended: Exception | None = None

    def end(self, error: Exception) -> None:
        """Ends the response: the waiting caller gets `error`."""
        self._ended = error
        if self._connection is not None:
            self._connection.fail(error)

    def _on(self, connection: _Connection) -> None:
        self._connection = connection
        if self._ended is not None:
            connection.fail(self._ended)

    def _off(self) -> None:
        """Ends the response and drops its callbacks, so that no part of a long run waits for the
        garbage collector."""
        self.on_event, self.on_quiet = _deaf, None
        self._connection = None


class ReadTurn:
    """The reads of one turn of the event loop, on all connections to a server."""

    def __init__(self) -> None:
        self._ends_ns: int | None = None

    def is_over(self, now_ns: int) -> bool:
        """Whether data that is read now must wait until the other connections had their turn."""
        if self._ends_ns is None:
            self._ends_ns = now_ns + READ_NS
            asyncio.get_running_loop().call_soon(self._end)
        return now_ns >= self._ends_ns

    def _end(self) -> None:
        self._ends_ns = None


class _Connection(asyncio.Protocol):
    """One connection; httptools needs its callbacks to be public."""

    def __init__(self, turn: ReadTurn) -> None:
        self._turn = turn
        self._unread: deque[tuple[bytes, int]] = deque()
        """Bytes that wait for their turn, and the time at which they came."""
        self.transport: asyncio.Transport | None = None
        self.idle_since = 0.0
        self.heard_ns = 0
        self.whole = False
        self.told_quiet = False
        self.on_quiet: OnQuiet | None = None
        self._read_ns = 0
        self._parser: httptools.HttpResponseParser | None = None
        self._splitter = EventSplitter(MAX_EVENT_BYTES)
        self._error_body = b""
        self._on_event: OnEvent | None = None
        self._done: asyncio.Future[None] | None = None

    def begin(self, request: bytes, stream: Stream) -> asyncio.Future[None]:
        """Sends a request. The future ends with its response, or with its error."""
        if self.transport is None or self.transport.is_closing():
            raise StreamBroken("the connection is closed")
        self._parser = httptools.HttpResponseParser(self)
        self._splitter = EventSplitter(MAX_EVENT_BYTES)
        self._error_body = b""
        self._on_event, self.on_quiet = stream.on_event, stream.on_quiet
        self.whole = self.told_quiet = False
        self.heard_ns = time.monotonic_ns()
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._done

    def let_go(self) -> None:
        """Drops the callbacks of the response."""
        self._on_event = self.on_quiet = None
        self._done = None

    def close(self) -> None:
        self.let_go()
        self._unread.clear()
        if self.transport is not None:
            self.transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if not self._unread and not self._turn.is_over(now):
            self._feed(data, now)
            return
        if not self._unread:
            asyncio.get_running_loop().call_soon(self._feed_unread)
        self._unread.append((data, now))

    def _feed_unread(self) -> None:
        while self._unread:
            self._feed(*self._unread.popleft())

    def _feed(self, data: bytes, read_ns: int) -> None:
        self._read_ns = read_ns
        if self._parser is None:
            self.close()  # bytes without a request
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self.fail(cause if isinstance(cause, Exception) else StreamBroken(str(error)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._feed_unread()
        self.transport = None
        self.fail(StreamBroken(f"the connection ended inside the response ({exc})"))

    def on_body(self, body: bytes) -> None:
        if self._parser is None:
            return
        if self._parser.get_status_code() != 200:
            self._error_body += body[: MAX_ERROR_BYTES - len(self._error_body)]
            return
        for payload in self._splitter.feed(body):
            self.heard_ns = self._read_ns
            self.told_quiet = False
            if self._on_event is not None and not self._on_event(payload, self._read_ns):
                self._finish()
                self.close()
                return

    def on_message_complete(self) -> None:
        if self._parser is None:
            return
        status = self._parser.get_status_code()
        self.whole = self._parser.should_keep_alive()
        if status == 200:
            self._finish()
        else:
            self.fail(StatusError(status, self._error_body.decode(errors="replace")))

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def fail(self, error: Exception) -> None:
        """Gives `error` to the waiting caller, unless the response has ended."""
        self._on_event = None
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)


class StreamingHttp:
    """POST requests to one server whose responses are event streams. Keeps idle connections."""

    def __init__(self, url: str, path: str, *, silence: float) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or "127.0.0.1"
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._silence = silence
        prefix = parts.path.rstrip("/")
        self._head = (
            f"POST {prefix}{path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            "Content-Type: application/json\r\nAccept: text/event-stream\r\n"
        ).encode()
        self._idle: deque[_Connection] = deque()
        self._turn = ReadTurn()
        self._reading: dict[_Connection, None] = {}
        self._looking: asyncio.TimerHandle | None = None

    async def post(self, body: bytes, stream: Stream) -> None:
        """Returns when the response ended or the stream's `on_event` returned False.

        Raises StreamBroken, StreamSilent or StatusError, or an error of `on_event` or `Stream.end`.
        """
        request = b"%sContent-Length: %d\r\n\r\n%s" % (self._head, len(body), body)
        connection = self._take_idle() or await self._connect()
        try:
            done = connection.begin(request, stream)
            self._reading[connection] = None
            self._look_later()
            stream._on(connection)
            await done
        finally:
            self._reading.pop(connection, None)
            stream._off()
            connection.let_go()
            if connection.whole and connection.transport is not None:
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
            else:
                connection.close()

    def close(self) -> None:
        """Closes idle connections."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        while self._idle:
            self._idle.pop().close()

    def _take_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            alive = connection.transport is not None and not connection.transport.is_closing()
            if alive and time.monotonic() - connection.idle_since < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await loop.create_connection(
                    partial(_Connection, self._turn), self._host, self._port, ssl=self._tls
                )
        except (OSError, TimeoutError) as error:
            raise StreamBroken(f"no connection: {error!r}") from error
        return connection

    def _look_later(self) -> None:
        if self._looking is None:
            wait = min(LOOK_SECONDS, self._silence / 4)
            self._looking = asyncio.get_running_loop().call_later(wait, self._look)

    def _look(self) -> None:
        """Reports streams that are quiet and ends those that are silent."""
        self._looking = None
        now_ns, now = time.monotonic_ns(), asyncio.get_running_loop().time()
        for connection in list(self._reading):
            quiet = (now_ns - connection.heard_ns) / 1e9
            if quiet >= QUIET_SECONDS and not connection.told_quiet:
                connection.told_quiet = True
                if connection.on_quiet is not None:
                    connection.on_quiet(now - quiet)
            if quiet >= self._silence:
                connection.fail(StreamSilent(f"silent for {quiet:.0f} s"))
        if self._reading:
            self._look_later()
