"""The memory meter sees what children hold."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from bench.demo.memory import MemoryMeter, proportional, total
from bench.demo.processes import Command, Processes

HOLDS = "x = bytearray(80 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('here', flush=True)\nimport time; time.sleep(100)"  # noqa: E501


async def test_a_child_counts(tmp_path: Path) -> None:
    meter = MemoryMeter()
    running = asyncio.create_task(meter.run())
    before = total()
    async with Processes(tmp_path) as processes:
        holder = await processes.start(
            Command(name="holder", argv=(sys.executable, "-c", HOLDS), grace_s=5.0)
        )
        async with asyncio.timeout(20):
            while meter.peak < before + (75 << 20):
                await asyncio.sleep(0.05)
        assert proportional(holder.pid) > 80 << 20
    running.cancel()
    assert total() < before + (40 << 20)
    assert meter.peak > before + (75 << 20)


def test_a_process_that_is_gone_counts_nothing() -> None:
    assert proportional(2**22 + 1) == 0
    assert proportional(os.getpid()) > 1 << 20
