"""The page for Prometheus: what it shows, to whom, and what those cost who say nothing."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

from tests.support.waiting import until
from toolwright.process import metrics_page as page
from toolwright.process.metrics_page import HOST, MOST_READERS, threaded_page


def asked(port: int, path: str = "/metrics") -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("depth", "of something", registry=registry).set(7)
    return registry


@pytest.fixture
def port(registry: CollectorRegistry) -> Iterator[int]:
    with threaded_page(registry, 0) as port:
        yield port


def test_the_page_is_what_the_registry_holds(port: int) -> None:
    status, text = asked(port)
    (family,) = text_string_to_metric_families(text)
    assert (status, family.name, family.samples[0].value) == (200, "depth", 7)
    assert asked(port, "/")[0] == 404


def test_it_listens_on_loopback_alone(port: int) -> None:
    """127.0.0.2 is this machine too: a server on all addresses would answer there."""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5)


async def test_who_says_nothing_costs_a_few_threads_and_is_sent_away(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page._Reader, "timeout", 3.0)
    before = threading.active_count()
    with threaded_page(registry, 0) as port, contextlib.ExitStack() as stack:
        for _ in range(MOST_READERS):
            stack.enter_context(socket.create_connection((HOST, port)))
        await until(lambda: threading.active_count() == before + 1 + MOST_READERS, "their threads")
        one_more = stack.enter_context(socket.create_connection((HOST, port), timeout=2))
        assert one_more.recv(1) == b"", "it is closed before any of them is"
        await until(lambda: threading.active_count() == before + 1, "the silent ones' end")
        assert asked(port)[0] == 200
    assert threading.active_count() == before
