"""Several processes that serve one address: SO_REUSEPORT shares the connections among them.

Invariants
- A worker holds no state of a trajectory. If it dies, its connections break, and no others.
- A worker that ends is started again. One that cannot start at first ends the command.
- A worker ends with this process, also if this process is killed: its standard input is closed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import structlog

from ingress.errors import StartError
from toolwright.process.backoff import Backoff
from toolwright.rpc.errors import ListenError
from toolwright.rpc.http_server import address_of

STEADY_S = 60.0
"""Age from which a worker's end counts as its first, in seconds."""
BACKOFF = Backoff(0.5, 30.0)
"""Pauses before a worker is started again."""

log = structlog.get_logger("ingress")


async def serve_by_workers(
    words: Sequence[str], count: int, address: str, stop: asyncio.Event
) -> None:
    """Runs `count` workers until `stop` is set.

    words: the worker's command after the interpreter; `--listen HOST:PORT --worker NUMBER` is
    added. Raises ListenError for an address that is taken, StartError if a worker cannot start.
    """
    with reserved(address) as bound:
        command = (sys.executable, *words, "--listen", bound)
        try:
            async with asyncio.TaskGroup() as group:
                ready = [asyncio.Event() for _ in range(count)]
                keepers = [
                    group.create_task(_keep((*command, "--worker", str(number)), one.set))
                    for number, one in enumerate(ready)
                ]
                for one in ready:
                    await one.wait()
                print(f"serving agents on http://{bound} by {count} workers", flush=True)
                await stop.wait()
                for keeper in keepers:
                    keeper.cancel()
        except* StartError as errors:
            raise errors.exceptions[0] from None


@contextmanager
def reserved(address: str) -> Iterator[str]:
    """Holds "host:port" for workers, and yields it with the port that was bound. Raises
    ListenError."""
    host, port = address_of(address, True, "ingress.address", "")
    try:
        family, kind, number, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, number) as probe:
            # Another server that shares its port would take a part of the connections.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            place = probe.getsockname()
        held = socket.socket(family, kind, number)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(place)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ListenError(
            f"cannot listen on ingress.address {address}: {why}; stop what holds it, or choose "
            "another port"
        ) from error
    with held:
        yield f"{address.rpartition(':')[0]}:{place[1]}"


async def _keep(command: Sequence[str], ready: Callable[[], None]) -> None:
    """Runs one worker, and starts it again whenever it ends. Raises StartError if it ends before it
    has served at all."""
    served, failures = False, 0
    while True:
        began = time.monotonic()
        worker = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        try:
            if await _line(worker):
                served = True
                ready()
            code = await worker.wait()
        finally:
            await _end(worker)
        if not served:
            raise StartError("a worker could not start")
        failures = 0 if time.monotonic() - began >= STEADY_S else failures + 1
        log.warning("worker_ended", pid=worker.pid, code=code)
        await asyncio.sleep(BACKOFF.pause(failures))


async def _line(worker: Process) -> bytes:
    """The line that a worker prints when it serves; b"" if it ends before."""
    assert worker.stdout is not None
    return await worker.stdout.readline()


async def _end(worker: Process) -> None:
    if worker.returncode is None:
        with suppress(ProcessLookupError):
            worker.terminate()
        await worker.wait()


def watch_parent(stop: Callable[[], None]) -> None:
    """Calls `stop` when standard input is closed. Needs a running loop."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(0, 1):
            loop.remove_reader(0)
            stop()

    loop.add_reader(0, readable)
