"""Real jails and real services. A missing firejail fails these tests with the sentence that
fixes it."""

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.service import Client
from toolsvc.sandbox.config import MIB, Backend, Isolation, SandboxConfig
from toolsvc.sandbox.sandbox import Sandbox

SERVE = [sys.executable, "-c", "from toolsvc.cli import main; main()", "serve"]


WALLS: dict[str, dict[str, Any]] = {
    f"{backend}-{name}": {"backend": backend, **settings}
    for backend in (Backend.FIREJAIL, Backend.BUBBLEWRAP)
    for name, settings in {
        "full": {"isolation": Isolation.FULL},
        "compat": {"isolation": Isolation.COMPAT},
        "per-session": {"isolation": Isolation.PER_SESSION},
        # As on a kernel without Landlock, where the jail alone keeps files apart.
        "per-session-no-landlock": {"isolation": Isolation.PER_SESSION, "landlock_abi": 0},
    }.items()
}
"""Every way to confine a session that can be forced on one kernel. `compat` runs with the newest
Landlock that lacks scopes; older ones allow the jail less to lean on, not more."""


QUICK_WALLS = ("firejail-full", "bubblewrap-per-session")
"""The others belong to the slow tier, in every module."""


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.quick if name in QUICK_WALLS else pytest.mark.slow)
        for name in WALLS
    ],
    scope="module",
)
def walls(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WALLS[request.param]


SMALL: dict[str, Any] = {
    "shards": 1,
    "ready": 1,
    "memory_bytes": 192 * MIB,
    "disk_bytes": 6 * MIB,
    "file_bytes": 4 * MIB,
    "processes": 16,
}
"""A bomb of any kind costs little."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(walls: dict[str, Any]) -> AsyncIterator[Sandbox]:
    async with Sandbox(SandboxConfig(**walls, **SMALL)) as running:
        yield running


@dataclass
class Service:
    """A `toolsvc serve` in a process of its own."""

    process: subprocess.Popen[str]
    address: str


def start_service(log: Path, *arguments: str) -> Service:
    if "--listen" not in arguments:
        arguments = (*arguments, "--listen", "127.0.0.1:0")
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [*SERVE, *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    found = re.search(r" on ([^\s,]+)", process.stdout.readline())
    if found is None:
        process.wait(20)
        pytest.fail(f"toolsvc serve did not start: {log.read_text(encoding='utf-8')}")
    return Service(process, found.group(1))


@contextmanager
def running_service(log: Path, *arguments: str) -> Iterator[Service]:
    """A service that SIGTERM ends with exit code 0."""
    running = start_service(log, *arguments)
    yield running
    running.process.terminate()
    assert running.process.wait(40) == 0, log.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One python service for all tests that leave it as they find it."""
    log = tmp_path_factory.mktemp("service") / "errors.log"
    small = ("--ready", "2", "--shards", "1", "--memory-mib", "192")
    with running_service(log, "python", *small) as running:
        yield running


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts services, and sees to it that none outlives the test."""
    services: list[Service] = []

    def start_one(*arguments: str, **more: Any) -> Service:
        services.append(start_service(tmp_path / f"{len(services)}.log", *arguments, **more))
        return services[-1]

    yield start_one
    for one in services:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait(20)


@pytest.fixture
def serve_fails() -> Callable[..., str]:
    """Runs a `toolsvc serve` that must not start; returns the one line that it says why in."""

    def run(*arguments: str, environment: dict[str, str]) -> str:
        done = subprocess.run(
            [*SERVE, *arguments], capture_output=True, text=True, timeout=60, env=environment
        )
        assert done.returncode == 1, done
        assert "Traceback" not in done.stderr
        return done.stderr.splitlines()[-1]

    return run


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[str], Client]]:
    clients: list[Client] = []

    def connect_one(address: str) -> Client:
        clients.append(Client(address))
        return clients[-1]

    yield connect_one
    for one in clients:
        await one.channel.close()
