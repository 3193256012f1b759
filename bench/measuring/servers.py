"""Starts the servers that an instrument measures. Each is a process of its own, and prints
`serving ... on ADDRESS` into its log once it listens."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from console.machine.processes import Command, Processes, Running

BIN = Path(sys.executable).parent
READY_S = 120.0
POLL_S = 0.1
_SERVING = re.compile(r"^serving .* on (\S+?:\d+|unix:[^,\s]+)", re.MULTILINE)


def program(name: str, *argv: str, grace_s: float = 10.0) -> Command:
    """A program of this project, such as `toolsvc serve`. name: of its log."""
    first, *others = argv
    return Command(name=name, argv=(str(BIN / first), *others), grace_s=grace_s)


def module(name: str, *argv: str) -> Command:
    """A module of this project that runs as a program. name: of its log."""
    return Command(name=name, argv=(sys.executable, "-m", *argv))


async def serving(processes: Processes, command: Command) -> tuple[Running, str]:
    """Starts a server. Returns the process and its address.

    Raises ProcessFailed if the server ends, and NotReady if it prints no address in READY_S.
    """
    running = await processes.start(command)
    found: list[str] = []

    async def look() -> None:
        while not found:
            if line := _SERVING.search(log_of(running)):
                found.append(line[1])
            else:
                await asyncio.sleep(POLL_S)

    await processes.while_alive(processes.until_ready(running, look(), READY_S))
    return running, found[0]


async def listening(processes: Processes, running: Running, ports: Iterable[int]) -> None:
    """Returns once all ports of loopback accept connections. Raises as `serving` does."""
    from console.machine.ready import accepts  # needs aiohttp, which `bench --help` does not

    async def look() -> None:
        await asyncio.gather(*map(accepts, ports))

    await processes.while_alive(processes.until_ready(running, look(), READY_S))


def log_of(running: Running) -> str:
    """The log of a process so far."""
    return running.log.read_text(errors="replace", encoding="utf-8")
