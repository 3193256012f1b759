"""The two servers of a trial: the tool service, started here or already running, and the floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import grpc
import grpc.aio
import psutil

from bench.errors import BenchError
from bench.measuring.servers import module, program, serving
from bench.tools.load import noop
from bench.tools.load.workloads import NOOP
from console.machine.processes import Processes
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import from_rpc_error
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

GRACE_S = 60.0
"""Thousands of sessions end one by one."""
ANSWER_S = 10.0
ROOM = 1.25
"""Limit of the service's sessions, as a factor to the sessions that are opened. Sessions of the
last load may still be ending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A tool service or the floor."""

    address: str
    roots: tuple[int, ...] = ()
    """Process ids on this machine; empty for a server on another machine."""
    token: str = ""


async def start_service(
    processes: Processes,
    tools: Sequence[str],
    *,
    sessions: int,
    workers: int = 1,
    arguments: Sequence[str] = (),
) -> Server:
    """Starts `toolsvc serve` of `tools` with room for `sessions`.

    Raises ProcessFailed or NotReady, with the end of its log, if it does not start.
    """
    several = ("--workers", str(workers)) if workers > 1 else ()
    running, address = await serving(
        processes,
        program(
            "service", "toolsvc", "serve", *_named(tools), "--listen", "127.0.0.1:0",
            "--max-sessions", str(ceil(sessions * ROOM)), *several, *arguments, grace_s=GRACE_S,
        ),
    )  # fmt: skip
    return Server(address=address, roots=(running.pid,))


async def start_floor(processes: Processes) -> Server:
    """Starts the floor."""
    running, address = await serving(processes, module("floor", "bench.tools.load.floor"))
    return Server(address=address, roots=(running.pid,))


async def find(address: str, token: str, tools: Sequence[str]) -> Server:
    """A service that runs already, with its processes if they listen on this machine.

    Raises BenchError if it does not answer or lacks one of `tools`.
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
    """The services of this machine that listen at the address."""
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
    """The first process of the service. Only its workers may listen at its address."""
    parent = listening.parent()
    if parent is None or parent.exe() != listening.exe() or "serve" not in parent.cmdline():
        return listening
    return parent


def _named(tools: Sequence[str]) -> list[str]:
    """The tools as arguments of `toolsvc serve`."""
    return [noop.__file__ if tool == NOOP else tool for tool in tools]
