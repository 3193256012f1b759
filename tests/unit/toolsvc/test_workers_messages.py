"""Lines between supervisor and worker come out as they went in."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolsvc.sandbox.config import Isolation, SandboxConfig
from toolsvc.serving import ServiceConfig
from toolsvc.workers.messages import (
    TO_SUPERVISOR,
    TO_WORKER,
    AskMetrics,
    Assignment,
    Failed,
    Membership,
    Message,
    MetricsPage,
    Ready,
)
from toolsvc.workers.placement import Member, View

CONFIG = ServiceConfig(
    tools=("python", "a tool.py"),
    settings=("python.output_kib=3",),
    sandbox=SandboxConfig(isolation=Isolation.COMPAT, python="/usr/bin/python3", ready=7),
    listen="127.0.0.1:50061",
    certificate=Path("a.pem"),
    key=Path("b.pem"),
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
            public="127.0.0.1:50061",
            link="unix-abstract:x",
            advertise="tools.example.org",
        ),
        Membership(
            view=View(epoch=3, members=(Member(slot=0, joined=2, endpoint="h:1", link="l"),))
        ),
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
        Ready(endpoint="127.0.0.1:5", tools=("a", "b"), isolation="full"),
        Failed(sentence="no firejail\nanywhere"),
        MetricsPage(text="# HELP x\nx 1\n"),
    ],
    ids=lambda message: message.kind,
)
def test_to_the_supervisor(message: Message) -> None:
    line = message.line()
    assert line.count(b"\n") == 1
    assert TO_SUPERVISOR.validate_json(line) == message
