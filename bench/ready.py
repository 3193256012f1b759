"""Whether a process answers: probes that return once it does, and never by themselves give up."""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import ExitStack, suppress
from typing import Any

import aiohttp
import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from toolwright.common.v1.trajectory_pb2 import WeightVersion
from toolwright.rollout.v1 import rollout_pb2 as rollout
from toolwright.rollout.v1 import rollout_pb2_grpc
from toolwright.rpc.channel import open_channel

INTERVAL_S = 0.25
ANSWER_S = 2.0
_PORTS = 15_000, 32_767


async def http_ready(url: str) -> None:
    """Returns when GET answers 200."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        while True:
            try:
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            except (aiohttp.ClientError, TimeoutError, ConnectionError):
                pass
            await asyncio.sleep(INTERVAL_S)


async def grpc_ready(address: str) -> None:
    """Returns when grpc.health.v1 answers SERVING."""
    while True:
        # A new channel each time: one that found nobody waits longer and longer.
        async with open_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            try:
                answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=ANSWER_S)
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return
            except grpc.aio.AioRpcError:
                pass
        await asyncio.sleep(INTERVAL_S)


async def evaluated(address: str) -> None:
    """Returns when the engine has evaluated the last version."""
    async with open_channel(address) as channel:
        engine = rollout_pb2_grpc.RolloutServiceStub(channel)
        while True:
            try:
                status = await engine.GetStatus(rollout.GetStatusRequest(), timeout=ANSWER_S * 5)
                if status.final_evaluation_done:
                    return
            except grpc.aio.AioRpcError:
                pass
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
    """Returns when somebody listens on that port of loopback."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(INTERVAL_S)
        else:
            writer.close()
            return


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody holds now, all different.

    From below those that the kernel gives to outgoing connections (Linux: from 32768 on): a server
    takes a minute until it listens, and any connection might have its port by then.
    """
    chosen: list[int] = []
    with ExitStack() as stack:
        while len(chosen) < count:
            port = random.SystemRandom().randint(*_PORTS)
            probe = stack.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                chosen.append(port)
    return chosen
