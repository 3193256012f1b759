"""The memory meter sees what children hold."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from console.machine.memory import (
    MemoryMeter,
    proportional,
    total,
)
from console.machine.processes import Command, Processes

HOLDS = """
import time
held = bytearray(80 << 20)
for place in range(0, len(held), 4096):
    held[place] = 1
time.sleep(100)
"""


async def test_a_child_counts(tmp_path: Path, until: Any) -> None:
    meter = MemoryMeter()
    running = asyncio.create_task(meter.run())
    async with Processes(tmp_path) as processes:
        holder = await processes.start(
            Command(name="holder", argv=(sys.executable, "-c", HOLDS), grace_s=5.0)
        )
        # Beside what this process takes now: its part of what it shares changes with the others.
        await until(lambda: meter.now > proportional(os.getpid()) + (75 << 20))
        assert proportional(holder.pid) > 80 << 20
    running.cancel()
    assert total() < proportional(os.getpid()) + (40 << 20)


def test_a_process_that_is_gone_counts_nothing() -> None:
    assert proportional(2**22 + 1) == 0
    assert proportional(os.getpid()) > 1 << 20
