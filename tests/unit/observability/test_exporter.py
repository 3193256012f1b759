"""Spans on their way to a collector: it may be away, slow, full, hostile; nobody waits for it, and
what becomes of every span is counted."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from tests.support.collectors import FakeCollector, answering, spans_by_service, speaking
from tests.support.net import free_port
from tests.support.waiting import until
from toolwright.process.backoff import Backoff
from toolwright.tracing import exporter as module
from toolwright.tracing.exporter import Exporter
from toolwright.tracing.settings import CollectorUnclear, collector_of
from toolwright.tracing.spans import Span


def spans(count: int) -> list[Span]:
    return [
        Span(trace=f"{n + 1:032x}", id=f"{n + 1:016x}", name="x", start_ns=1, end_ns=2, process="p")
        for n in range(count)
    ]


@contextlib.contextmanager
def exporting(url: str) -> Iterator[Exporter]:
    collector = collector_of(url, {})
    assert collector is not None
    exporter = Exporter(collector, process="p")
    try:
        yield exporter
    finally:
        exporter.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second is waited for what a test is not about."""
    monkeypatch.setattr(module, "GATHER_S", 0.01)
    monkeypatch.setattr(module, "LAST_S", 0.5)


async def test_all_arrive_in_requests_of_a_bounded_size() -> None:
    async with FakeCollector().serving() as collector:
        with exporting(collector.url) as exporter:
            exporter.offer(spans(300))
            await until(lambda: exporter.sent == 300, "all of them")
    assert [span.trace_id.hex() for _, span in collector.spans] == [one.trace for one in spans(300)]
    sizes = [len(spans_by_service([request])) for request in collector.requests]
    assert max(sizes) == module.AT_ONCE
    assert (exporter.dropped, exporter.refused, exporter.waiting) == (0, 0, 0)


def test_the_end_drops_and_counts_what_nobody_took() -> None:
    with exporting(f"http://127.0.0.1:{free_port()}") as exporter:
        exporter.offer(spans(10))
    assert (exporter.sent, exporter.dropped, exporter.waiting) == (0, 10, 0)
    exporter.offer(spans(3))
    assert exporter.dropped == 13, "after the end too"


def test_a_full_queue_drops_what_comes_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 100)
    monkeypatch.setattr(module, "DEADLINE_S", 0.2)
    silent: list[socket.socket] = []
    with (
        speaking(lambda connection: silent.append(connection.dup())) as url,
        exporting(url) as exporter,
    ):
        began = time.process_time()
        for one in spans(1000):
            exporter.offer([one])
        assert time.process_time() - began < 0.5
        assert exporter.dropped == 900
        assert exporter.waiting == 100
    assert (exporter.sent, exporter.dropped) == (0, 1000)
    for connection in silent:
        connection.close()


async def test_one_that_comes_back_gets_what_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF", Backoff(0.05, 0.05))
    statuses = iter([503, 429, 200])
    with answering(lambda: next(statuses)) as (url, came), exporting(url) as exporter:
        exporter.offer(spans(5))
        await until(lambda: exporter.sent == 5, "the third try")
    assert len(came) == 3
    assert len(set(came)) == 1, "the same request three times"
    assert (exporter.dropped, exporter.refused) == (0, 0)


@pytest.mark.parametrize("status", [400, 401, 404, 302])
async def test_what_is_refused_for_good_is_counted_and_not_sent_again(status: int) -> None:
    with (
        answering(status, Location="http://127.0.0.1:1/") as (url, came),
        exporting(url) as exporter,
    ):
        exporter.offer(spans(5))
        await until(lambda: exporter.refused == 5, "the refusal")
    assert len(came) == 1
    assert (exporter.sent, exporter.dropped) == (0, 0)


async def test_an_endless_answer_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first line tells all: what follows is cut off."""
    cut: list[bool] = []

    def flood(connection: socket.socket) -> None:
        connection.recv(1 << 20)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        connection.settimeout(10)
        try:
            for _ in range(10_000):
                connection.sendall(b"x" * (1 << 16))
            cut.append(False)
        except OSError:
            cut.append(True)

    with speaking(flood) as url, exporting(url) as exporter:
        exporter.offer(spans(1))
        await until(lambda: exporter.sent == 1, "its first line")
        await until(lambda: bool(cut), "the end of the flood")
    assert cut == [True]


@pytest.mark.parametrize("line", [b"SSH-2.0-OpenSSH\r\n", b"x" * 5000, b"\r\n", b""])
def test_what_is_no_http_is_no_answer(line: bytes) -> None:
    def say(connection: socket.socket) -> None:
        connection.recv(1 << 20)
        connection.sendall(line)

    with speaking(say) as url, exporting(url) as exporter:
        exporter.offer(spans(1))
    assert (exporter.sent, exporter.dropped) == (0, 1)


def test_one_that_drips_has_a_deadline_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEADLINE_S", 0.3)
    tries: list[float] = []

    def drip(connection: socket.socket) -> None:
        connection.recv(1 << 20)
        began = time.monotonic()
        with contextlib.suppress(OSError):
            for _ in range(1000):
                connection.sendall(b"H")
                connection.settimeout(0.02)
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(1):
                        break
        tries.append(time.monotonic() - began)

    with speaking(drip) as url, exporting(url) as exporter:
        exporter.offer(spans(1))
    assert exporter.dropped == 1
    assert tries and max(tries) < 15, "a thousand drips are twenty seconds"


def test_where_traces_go() -> None:
    def told(recipe: str = "", **environment: str) -> str:
        return str(collector_of(recipe, environment))

    base, own = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    assert told() == "None"
    assert told("http://127.0.0.1:4318") == "http://127.0.0.1:4318/v1/traces"
    assert told("http://[::1]:4318/") == "http://[::1]:4318/v1/traces"
    assert told(**{base: "https://otel.example/x"}) == "https://otel.example:443/x/v1/traces"
    assert told(**{base: "http://a", own: "http://b/traces"}) == "http://b:80/traces"
    assert told("http://c", **{base: "http://a", own: "http://b"}) == "http://c:80/v1/traces"
    assert told("http://c", OTEL_SDK_DISABLED="true") == "None"
    assert told("http://c", OTEL_TRACES_EXPORTER="none") == "None"


@pytest.mark.parametrize(
    "endpoint",
    [
        "127.0.0.1:4318",
        "grpc://a:4317",
        "http://",
        "http://a:x",
        "http://u:p@a",
        "http://a/\r\nX:",
    ],
)
def test_an_endpoint_that_is_none_names_the_mend(endpoint: str) -> None:
    with pytest.raises(CollectorUnclear, match="write http://HOST:PORT"):
        collector_of(endpoint, {})


def test_keys_are_sent_and_never_shown() -> None:
    headers = "OTEL_EXPORTER_OTLP_HEADERS"
    collector = collector_of("http://a", {headers: "api-key=s%20e, x-team=t"})
    assert collector is not None
    assert dict(collector.headers) == {"api-key": "s e", "x-team": "t"}
    assert "s e" not in f"{collector} {collector!r}"
    for bad in ("secret", "a b=c", "a=x%0d%0aHost: y"):
        with pytest.raises(CollectorUnclear, match=headers) as caught:
            collector_of("http://a", {headers: bad})
        assert "secret" not in str(caught.value)
