"""Whether a process answers: probes that return once it does, and never by themselves give up."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from contextlib import ExitStack, suppress
from typing import Any

import aiohttp
import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from console.errors import NotReady
from toolwright.common.v1.trajectory_pb2 import WeightVersion
from toolwright.rollout.v1 import rollout_pb2 as rollout
from toolwright.rollout.v1 import rollout_pb2_grpc
from toolwright.rpc.channel import open_channel
from toolwright.rpc.options import TOKEN_VARIABLE

INTERVAL_S = 0.25
ANSWER_S = 2.0
AWAY_S = 600.0
"""An engine that is started again reads its journal and brings every sampler to its weights."""
_PORTS = 15_000, 32_767


async def http_ready(url: str) -> None:
    """Returns when GET answers 200."""
    while not await http_serves(url):  # noqa: ASYNC110 - a server tells nobody that it listens
        await asyncio.sleep(INTERVAL_S)


async def grpc_serves(address: str) -> bool:
    """Whether grpc.health.v1 answers SERVING now."""
    async with _channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=ANSWER_S)
        except grpc.aio.AioRpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def http_serves(url: str) -> bool:
    """Whether GET answers 200 now."""
    with suppress(aiohttp.ClientError, TimeoutError, OSError):
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            return answer.status == 200
    return False


async def grpc_ready(address: str) -> None:
    """Returns when grpc.health.v1 answers SERVING."""
    while True:
        # A new channel each time: one that found nobody waits longer and longer.
        if await grpc_serves(address):
            return
        await asyncio.sleep(INTERVAL_S)


async def evaluated(address: str) -> None:
    """Returns when the engine has evaluated the last version. NotReady once it has been away for
    AWAY_S."""
    heard = time.monotonic()
    async with _channel(address) as channel:
        engine = rollout_pb2_grpc.RolloutServiceStub(channel)
        while True:
            try:
                status = await engine.GetStatus(rollout.GetStatusRequest(), timeout=ANSWER_S * 5)
                if status.final_evaluation_done:
                    return
                heard = time.monotonic()
            except grpc.aio.AioRpcError as error:
                if time.monotonic() - heard > AWAY_S:
                    raise NotReady(
                        f"the engine at {address} has not answered for {AWAY_S / 60:.0f} min, and "
                        f"the last version is not evaluated ({error.details()}): start it again"
                    ) from error
            await asyncio.sleep(INTERVAL_S)


async def origin(stub: Any) -> WeightVersion:
    """The version that the samplers have, once the engine behind `stub` has brought them there."""
    while True:
        status = await stub.GetStatus(rollout.GetStatusRequest(), timeout=ANSWER_S * 5)
        if status.HasField("version"):
            version: WeightVersion = status.version
            return version
        await asyncio.sleep(INTERVAL_S)


async def accepts(port: int) -> None:
    """Returns when a process listens on that port of loopback."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(INTERVAL_S)
        else:
            writer.close()
            return


def _channel(address: str) -> grpc.aio.Channel:
    return open_channel(address, os.environ.get(TOKEN_VARIABLE, ""))


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
