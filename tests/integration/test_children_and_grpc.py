"""Programs that a process starts while it speaks gRPC: tools, workers, whole services."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.quick

TALK_AND_START = """
import asyncio, contextlib, importlib, sys
importlib.import_module(sys.argv[1])
import grpc.aio
from toolwright.process import loop


async def talk(channel):
    while True:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await channel.unary_unary("/a.Service/Call")(b"", timeout=1)


async def main():
    async with grpc.aio.insecure_channel("unix-abstract:nobody-listens-here") as channel:
        talking = [asyncio.create_task(talk(channel)) for _ in range(20)]
        for _ in range(20):
            child = await asyncio.create_subprocess_exec("true")
            assert await child.wait() == 0
        for one in talking:
            one.cancel()
        await asyncio.gather(*talking, return_exceptions=True)


loop.run(main())
"""


@pytest.mark.parametrize("program", ["engine.cli", "toolsvc.cli", "toolsvc.fleet.local.worker"])
def test_grpc_has_no_hand_in_a_fork(program: str) -> None:
    """Its handlers announce themselves on standard error, and have killed children."""
    done = subprocess.run(
        [sys.executable, "-c", TALK_AND_START, program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "fork" not in done.stderr
