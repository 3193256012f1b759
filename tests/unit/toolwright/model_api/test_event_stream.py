"""Bytes of an event stream to events, as the standard reads them."""

from __future__ import annotations

import time

import pytest

from toolwright.model_api.errors import WireError
from toolwright.model_api.event_stream import EventReader, StreamEvent

pytestmark = pytest.mark.quick


def read(data: bytes, size: int = 1000) -> list[StreamEvent]:
    reader = EventReader()
    found = []
    for start in range(0, len(data), size):
        found += reader.feed(data[start : start + size])
    return found + reader.end()


EVENTS = (
    b": a comment\r\n\r\ndata: one\r\n\r\nevent: x\ndata:two\ndata: three\n\n\n\ndata: [DONE]\n\n"
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    "data",
    [
        EVENTS,
        b"\xef\xbb\xbf" + EVENTS,
        EVENTS.replace(b"\r\n", b"\n"),
        EVENTS.replace(b"\r\n", b"\n").replace(b"\n", b"\r"),
        EVENTS.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"),
        b"event: ping\ndata: {}\n\ndata:\n\ndata\n\n" + EVENTS,
        b"retry: 3\nid: 7\n\n" + EVENTS.removesuffix(b"\n\n"),
    ],
)
def test_events_come_whole_however_the_bytes_come(data: bytes, size: int) -> None:
    assert [event.data for event in read(data, size)] == [b"one", b"two\nthree", b"[DONE]"]


@pytest.mark.parametrize(
    "data",
    [
        b'error: {"code":400}\n\n',
        b'event: error\ndata: {"code":400}\n\n',
        b'error:{"code":400}\r\rdata: [DONE]\r\r',
    ],
)
def test_an_error_outside_the_payload(data: bytes) -> None:
    assert read(data)[0] == StreamEvent(b'{"code":400}', is_error=True)


def test_the_streams_end_completes_an_event() -> None:
    reader = EventReader()
    assert reader.feed(b"data: last") == []
    assert reader.end() == [StreamEvent(b"last")]
    assert EventReader().end() == []


@pytest.mark.parametrize("piece", [b"x" * 64, b"data: " + b"x" * 58])
def test_an_endless_line_is_refused_in_linear_time(piece: bytes) -> None:
    reader = EventReader(limit=1 << 20)
    began = time.process_time()
    with pytest.raises(WireError, match="more than"):
        while True:
            reader.feed(piece)
    assert time.process_time() - began < 2.0  # searched from its beginning each time: minutes


@pytest.mark.parametrize("line", [b"data: 0123456789\n", b"error: 0123456789\n", b"data:\n"])
def test_an_event_of_endless_lines_is_refused(line: bytes) -> None:
    reader = EventReader(limit=1000)
    with pytest.raises(WireError, match="more than"):
        for _ in range(2000):
            reader.feed(line)


def test_an_event_may_have_as_many_bytes_as_the_limit() -> None:
    reader = EventReader(limit=100)
    (event,) = reader.feed(b"data:" + b"x" * 50 + b"\ndata:" + b"x" * 49 + b"\n\n")
    assert len(event.data) == 100
