"""The two servers of a trial: the tool service, started here or somewhere else, and the floor."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import grpc
import grpc.aio
import psutil

from bench.dispatch import noop
from bench.errors import BenchError
from bench.tools.load.workloads import NOOP
from console.machine.processes import Command, Processes, Running
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import from_rpc_error
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

BIN = Path(sys.executable).parent
START_S = 120.0
GRACE_S = 60.0
"""Thousands of sessions end one by one."""
LOOK_S = 0.1
ANSWER_S = 10.0
ROOM = 1.25
"""Sessions that the service may hold, to those that are opened: some of the last load may still be
ending."""
_SERVING = re.compile(r"^serving .* on (\S+?:\d+|unix:[^,\s]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """`roots`: its process ids on this machine; none where it runs elsewhere."""

    address: str
    roots: tuple[int, ...] = ()
    token: str = ""


async def start_service(
    processes: Processes,
    tools: Sequence[str],
    *,
    sessions: int,
    workers: int = 1,
    arguments: Sequence[str] = (),
) -> Server:
    """`toolsvc serve` of `tools` with room for `sessions`.

    ProcessFailed or NotReady, with the end of its log, where it does not come up.
    """
    several = ("--workers", str(workers)) if workers > 1 else ()
    running = await processes.start(
        Command(
            name="service",
            argv=(
                str(BIN / "toolsvc"), "serve", *_named(tools), "--listen", "127.0.0.1:0",
                "--max-sessions", str(ceil(sessions * ROOM)), *several, *arguments,
            ),
            grace_s=GRACE_S,
        )
    )  # fmt: skip
    return await _announced(processes, running)


async def start_floor(processes: Processes) -> Server:
    """The bare floor, under the same context as the service."""
    running = await processes.start(
        Command(name="floor", argv=(sys.executable, "-m", "bench.tools.load.floor"))
    )
    return await _announced(processes, running)


async def find(address: str, token: str, tools: Sequence[str]) -> Server:
    """A service that somebody else started; its processes, if they listen on this machine.

    BenchError where it does not answer or lacks one of `tools`.
    """
    async with open_channel(address, token) as channel:
        try:
            listed = await tool_pb2_grpc.ToolServiceStub(channel).ListTools(
                pb.ListToolsRequest(), timeout=ANSWER_S
            )
        except grpc.aio.AioRpcError as error:
            raise BenchError(
                f"--target {address} does not answer: {from_rpc_error(error)}; start it with "
                f"`toolsvc serve {' '.join(_named(tools))} --listen {address}`"
            ) from error
    missing = set(tools) - {tool.name for tool in listed.tools}
    if missing:
        raise BenchError(
            f"--target {address} does not serve {', '.join(missing)}: start it with "
            f"`toolsvc serve {' '.join(_named(tools))}`"
        )
    return Server(address=address, roots=_listening(address), token=token)


def _listening(address: str) -> tuple[int, ...]:
    """The services of this machine that listen there."""
    host, _, port = address.rpartition(":")
    if host not in ("127.0.0.1", "localhost", "[::1]"):
        return ()
    return tuple(
        {
            _service_of(psutil.Process(one.pid)).pid
            for one in psutil.net_connections("tcp")
            if one.status == psutil.CONN_LISTEN and one.laddr[1:] == (int(port),) and one.pid
        }
    )


def _service_of(listening: psutil.Process) -> psutil.Process:
    """Of several processes of one service only some listen at its address."""
    parent = listening.parent()
    if parent is None or parent.exe() != listening.exe() or "serve" not in parent.cmdline():
        return listening
    return parent


def _named(tools: Sequence[str]) -> list[str]:
    """As `toolsvc serve` takes them."""
    return [noop.__file__ if tool == NOOP else tool for tool in tools]


async def _announced(processes: Processes, running: Running) -> Server:
    found: list[Server] = []

    async def look() -> None:
        while not found:
            line = _SERVING.search(running.log.read_text(errors="replace", encoding="utf-8"))
            if line is not None:
                found.append(Server(address=line[1], roots=(running.pid,)))
            else:
                await asyncio.sleep(LOOK_S)

    await processes.while_alive(processes.until_ready(running, look(), START_S))
    return found[0]
