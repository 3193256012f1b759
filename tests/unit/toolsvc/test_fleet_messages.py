"""Lines between a front and its workers come out as they went in."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolsvc.edge.wire import LONGEST_ID
from toolsvc.fleet.hosts import Ready
from toolsvc.fleet.local.messages import (
    LONGEST_LINE,
    TO_FRONT,
    TO_WORKER,
    AskMetrics,
    AskSessions,
    Assignment,
    Closed,
    Failed,
    Holding,
    Message,
    MetricsPage,
    Started,
    longest_line,
)
from toolsvc.sandbox.config import Isolation
from toolsvc.service_config import ServiceConfig

CONFIG = ServiceConfig(
    tools=("python", "a tool.py"),
    settings=("python.output_kib=3",),
    isolation=Isolation.COMPAT,
    sandbox_python="/usr/bin/python3",
    ready=7,
    listen="127.0.0.1:50061",
    tls_cert=Path("a.pem"),
    tls_key=Path("b.pem"),
    max_sessions=3,
    permits=4,
)


@pytest.mark.parametrize(
    "message",
    [
        Assignment(
            config=CONFIG,
            slot=1,
            listen="127.0.0.1:0",
            advertise="tools.example.org",
            link="unix-abstract:x-1",
            front="unix-abstract:x",
            token="secret",
        ),
        AskSessions(),
        AskMetrics(),
    ],
    ids=lambda message: message.kind,
)
def test_to_a_worker(message: Message) -> None:
    line = message.line()
    assert line.count(b"\n") == 1
    assert TO_WORKER.validate_json(line) == message


@pytest.mark.parametrize(
    "message",
    [
        Started(ready=Ready(link="l", endpoint="127.0.0.1:5", tools=("a", "b"), isolation="full")),
        Failed(sentence="no firejail\nanywhere"),
        Holding(sessions=frozenset({"a\nsession", "ä"})),
        Closed(session_id="a\nsession"),
        MetricsPage(text="# HELP x\nx 1\n"),
    ],
    ids=lambda message: message.kind,
)
def test_to_the_front(message: Message) -> None:
    line = message.line()
    assert line.count(b"\n") == 1
    assert TO_FRONT.validate_json(line) == message


def test_whatever_ids_clients_choose_their_line_is_short_enough() -> None:
    ids = frozenset(
        "\x01" * (LONGEST_ID - 1) + chr(0x4E00 + number) for number in range(CONFIG.max_sessions)
    )
    assert len(Holding(sessions=ids).line()) < longest_line(CONFIG) - LONGEST_LINE + 100
