"""Whether a server answers at an address, now or at last; and free ports."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from contextlib import ExitStack, suppress

import aiohttp
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from toolwright.rpc.channel import open_channel
from toolwright.rpc.options import TOKEN_VARIABLE, is_unix

INTERVAL_S = 0.25
ANSWER_S = 2.0
_PORTS = 15_000, 32_767


async def serves(ready: str) -> bool:
    """Whether a server answers now. ready: "grpc:HOST:PORT" for SERVING of grpc.health.v1, or a URL
    for 200."""
    if ready.startswith("grpc:"):
        # A new channel each time: one that failed waits longer and longer.
        address, token = ready.removeprefix("grpc:"), os.environ.get(TOKEN_VARIABLE, "")
        async with open_channel(address, token) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            try:
                answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=ANSWER_S)
            except grpc.aio.AioRpcError:
                return False
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
    with suppress(aiohttp.ClientError, TimeoutError, OSError):
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(ready) as answer:
            return answer.status == 200
    return False


async def until_serves(ready: str) -> None:
    """Returns when a server answers. ready: as for `serves`."""
    while not await serves(ready):  # noqa: ASYNC110 - no event tells that a server listens
        await asyncio.sleep(INTERVAL_S)


async def accepts_at(address: str) -> bool:
    """Whether a process listens at HOST:PORT or unix:/PATH."""
    host, _, port = address.rpartition(":")
    with suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(ANSWER_S):
            if is_unix(address):
                path = address.removeprefix("unix:").removeprefix("//")
                _, writer = await asyncio.open_unix_connection(path)
            else:
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        writer.close()
        return True
    return False


async def accepts(port: int) -> None:
    """Returns when a process listens on that port of loopback."""
    while not await accepts_at(f"127.0.0.1:{port}"):  # noqa: ASYNC110 - as above
        await asyncio.sleep(INTERVAL_S)


def free_ports(count: int, among: tuple[int, int] = _PORTS) -> list[int]:
    """Loopback ports that no process holds now, all different. among: the first and the last.

    From below those that the kernel gives to outgoing connections (Linux: from 32768 on): a server
    takes a minute until it listens, and any connection might have its port by then.
    """
    chosen: list[int] = []
    with ExitStack() as stack:
        while len(chosen) < count:
            port = random.SystemRandom().randint(*among)
            probe = stack.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                chosen.append(port)
    return chosen
