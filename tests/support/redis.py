"""A Redis of the tests' own, on loopback. A machine without one fails the tests with the sentence
that mends it."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator

import pytest
from redis import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from console.machine.ready import free_ports

MEMORY = 16 << 20


class RedisServer:
    """Keeps nothing on disk, and MEMORY bytes at most."""

    def __init__(self, policy: str = "allkeys-lru") -> None:
        """policy: what it does when it is full."""
        program = shutil.which("redis-server")
        if program is None:
            pytest.fail("these tests need Redis: apt-get install redis-server")
        self._program = program
        self._policy = policy
        (self.port,) = free_ports(1)
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        """Returns when it answers."""
        words = ("--port", str(self.port), "--bind", "127.0.0.1", "--save", "")
        bound = ("--maxmemory", str(MEMORY), "--maxmemory-policy", self._policy)
        self._process = subprocess.Popen([self._program, *words, *bound], stdout=subprocess.DEVNULL)
        retry = Retry(ConstantBackoff(0.05), 200)
        with contextlib.closing(Redis(port=self.port, retry=retry)) as client:
            client.ping()

    def pause(self) -> None:
        """It takes connections and answers nothing, until `go_on`."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(20)


@contextlib.contextmanager
def redis_server(policy: str = "allkeys-lru") -> Iterator[RedisServer]:
    server = RedisServer(policy)
    try:
        yield server
    finally:
        server.stop()
