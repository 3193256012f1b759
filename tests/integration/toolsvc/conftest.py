"""Real jails and real services. A missing firejail fails these tests with the sentence that
mends it."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest
import pytest_asyncio

from toolsvc.sandbox.config import MIB, Isolation, SandboxConfig
from toolsvc.sandbox.sandbox import Sandbox

SERVE = [sys.executable, "-c", "from toolsvc.cli import main; main()", "serve"]


def config(level: Isolation | None = None, **changes: Any) -> SandboxConfig:
    """Small, so that a bomb of any kind costs little."""
    settings: dict[str, Any] = {
        "isolation": level,
        "shards": 1,
        "ready": 1,
        "memory_bytes": 192 * MIB,
        "disk_bytes": 6 * MIB,
        "file_bytes": 4 * MIB,
        "processes": 16,
    }
    return SandboxConfig(**{**settings, **changes})


@pytest.fixture(params=list(Isolation), ids=str, scope="module")
def level(request: pytest.FixtureRequest) -> Isolation:
    found: Isolation = request.param
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(level: Isolation) -> AsyncIterator[Sandbox]:
    async with Sandbox(config(level)) as running:
        yield running


@dataclass
class Service:
    """A `toolsvc serve` in a process of its own."""

    process: subprocess.Popen[str]
    address: str
    errors: list[str] = field(default_factory=list)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


Start = Callable[..., Service]


def start_service(*arguments: str, environment: dict[str, str] | None = None) -> Service:
    process = subprocess.Popen(
        [*SERVE, *arguments, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    service = Service(process, "")
    assert process.stdout is not None
    assert process.stderr is not None
    errors = process.stderr
    threading.Thread(target=lambda: service.errors.extend(errors), daemon=True).start()
    line = process.stdout.readline()
    found = re.search(r" on (\S+:\d+)", line)
    if found is None:
        process.wait(20)
        time.sleep(0.1)
        pytest.fail(f"toolsvc serve did not start: {line}{''.join(service.errors)}")
    service.address = found.group(1)
    return service


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts services, and sees to it that none outlives the test."""
    services: list[Service] = []

    def start_one(*arguments: str, **more: Any) -> Service:
        services.append(start_service(*arguments, **more))
        return services[-1]

    yield start_one
    for service in services:
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait(20)


def jails_of(pid: int) -> list[psutil.Process]:
    """Every process below the service `pid`."""
    return psutil.Process(pid).children(recursive=True)


def all_gone(processes: list[psutil.Process], within: float) -> bool:
    """Whether every one of them has ended in time."""
    return not psutil.wait_procs(processes, timeout=within)[1]
