"""Workers that do not do as they are told: real processes that only speak as workers do."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import toolsvc.fleet.local.child
from tests.support.net import free_port
from toolsvc.errors import StartError
from toolsvc.fleet.hosts import Ready
from toolsvc.fleet.local.messages import Said
from toolsvc.fleet.local.serving import serve_locally
from toolsvc.service_config import ServiceConfig

pytestmark = pytest.mark.quick

READY = Ready(link="unix-abstract:nobody", endpoint="127.0.0.1:1", tools=("any",), isolation="")
STARTED = Said(ready=READY).line().decode()
BABBLER = f"""
import os, sys
sys.stdin.readline()
sys.stdout.write({STARTED!r})
sys.stdout.flush()
try:
    with open(sys.argv[1], "x") as file:
        file.write(str(os.getpid()))
except FileExistsError:
    pass
else:
    sys.stdout.write(sys.argv[2])
    sys.stdout.flush()
sys.stdin.read()
"""
"""The first of them, which writes its number into the file, says what it is to say; none answers
what it is asked."""


def config(workers: int, listen: str = "127.0.0.1:0") -> ServiceConfig:
    return ServiceConfig(tools=("any",), workers=workers, listen=listen)


@pytest.mark.parametrize("says", ["what a worker never says\n", ""])
async def test_a_worker_that_says_nonsense_or_nothing_is_killed_and_replaced(
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    until: Callable[[Callable[[], bool]], Awaitable[None]],
) -> None:
    said = tmp_path / "said"
    monkeypatch.setattr(
        toolsvc.fleet.local.child, "WORKER", (sys.executable, "-c", BABBLER, str(said), says)
    )
    if not says:
        monkeypatch.setattr(toolsvc.fleet.local.child, "ANSWER_SECONDS", 0.2)
    before = set(psutil.Process().children())

    def workers() -> set[int]:
        return {process.pid for process in set(psutil.Process().children()) - before}

    running = asyncio.create_task(serve_locally(config(1, f"127.0.0.1:{free_port()}")))
    try:
        await until(lambda: bool(said.exists() and said.read_text(encoding="utf-8")))
        babbler = int(said.read_text(encoding="utf-8"))
        await until(lambda: len(workers() - {babbler}) == 1)
        assert not psutil.pid_exists(babbler)
        assert not running.done()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert workers() == set()


@pytest.mark.parametrize(
    ("worker", "says"),
    [
        (("/no/such/python",), "worker [01] could not be started: .*No such file"),
        (
            (sys.executable, "-c", "print('nonsense', flush=True); input(); input(); input()"),
            f"worker [01] died at its start, with exit code -{signal.SIGKILL:d}",
        ),
        (
            (sys.executable, "-c", "import signal; signal.pause()"),
            "worker [01] did not start within 1 s",
        ),
    ],
    ids=["no-executable", "nonsense", "hangs"],
)
async def test_a_worker_that_does_not_start_is_one_sentence(
    worker: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolsvc.fleet.local.child, "WORKER", worker)
    if "within" in says:
        monkeypatch.setattr(toolsvc.fleet.local.child, "START_SECONDS", 1.0)
    children: Any = set(psutil.Process().children())
    with pytest.raises(StartError, match=says):
        await serve_locally(config(2))
    assert set(psutil.Process().children()) == children
