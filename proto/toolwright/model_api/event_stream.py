"""Bytes of a server-sent event stream to events, as the WHATWG standard reads them. Pure.

Invariants
- A line ends with LF, CR or CR LF, in one stream as in another, and a byte-order mark is dropped.
- A stream takes bounded memory: a line and an event have at most `limit` bytes.
- The search for the end of a line is linear, however the bytes come.
- A comment, an empty event and a named keep-alive bring nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from toolwright.model_api.errors import WireError

DONE = b"[DONE]"
MAX_EVENT_BYTES = 4 * 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KEEP_ALIVES = (b"ping", b"keepalive", b"keep-alive", b"heartbeat")
"""Names of events that servers send only to keep a connection open."""


class StreamEvent(NamedTuple):
    """data: payload, without the white space around it. is_error: the server says so outside the
    payload, as the event's name or in a field `error`."""

    data: bytes
    is_error: bool = False


class EventReader:
    """Takes bytes, gives events; holds at most one partial event."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._after_return = False
        self._first = True
        self._name = b""
        self._data: list[bytes] = []
        self._errors: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[StreamEvent]:
        """The events that `data` completes, `[DONE]` included.

        Raises WireError if a line or an event grows beyond the limit.
        """
        if not data:
            return []
        if self._after_return:
            data = data.removeprefix(b"\n")
        self._after_return = data.endswith(b"\r") or (self._after_return and not data)
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        events: list[StreamEvent] = []
        searched, start = len(self._rest), 0
        self._rest += data
        while (end := self._rest.find(b"\n", max(start, searched))) >= 0:
            self._line(bytes(self._rest[start:end]), events)
            start = end + 1
        del self._rest[:start]
        self._check(len(self._rest))
        return events

    def end(self) -> list[StreamEvent]:
        """The events that the stream's end completes: some servers leave the last line open."""
        events: list[StreamEvent] = []
        self._line(bytes(self._rest), events)
        self._line(b"", events)
        self._rest.clear()
        return events

    def _line(self, line: bytes, events: list[StreamEvent]) -> None:
        self._check(len(line))
        if self._first:
            line, self._first = line.removeprefix(BYTE_ORDER_MARK), False
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._name = value
        elif name in (b"data", b"error"):
            self._size += len(value) + 1  # the line break that joins it: empty lines take room too
            self._check(self._size - 1)
            (self._data if name == b"data" else self._errors).append(value)

    def _dispatch(self, events: list[StreamEvent]) -> None:
        if self._errors:
            events.append(StreamEvent(b"\n".join(self._errors).strip(), is_error=True))
        data = b"\n".join(self._data).strip()
        if data and self._name.strip().lower() not in _KEEP_ALIVES:
            events.append(StreamEvent(data, is_error=self._name == b"error"))
        self._name, self._data, self._errors, self._size = b"", [], [], 0

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise WireError(f"an event of more than {self._limit} bytes")
