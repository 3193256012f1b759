"""Threads that encode: an agent with much work leaves the others their thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from ingress.text.tails import Tails
from ingress.text.workers import TextWorkers
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.quick


async def test_a_lane_has_one_thread_even_after_its_clients_have_left() -> None:
    tails = cast(Tails, None)
    workers, gate, begun = TextWorkers(lambda: tails, 2), threading.Event(), []

    def much(_: Any) -> int:
        begun.append(1)
        gate.wait(PATIENCE)
        return len(begun)

    first = [asyncio.create_task(workers.run(much, "hostile")) for _ in range(3)]
    assert await workers.run(lambda _: "soon", "other") == "soon"
    for one in first[:2]:
        one.cancel()
    await asyncio.wait(first[:2])
    assert await workers.run(lambda _: "soon", "other") == "soon"
    assert len(begun) == 1
    gate.set()
    assert await asyncio.wait_for(first[2], PATIENCE) == 2
    workers.close()


async def test_a_failure_leaves_the_lane_to_the_next() -> None:
    workers = TextWorkers(lambda: cast(Tails, None), 1)

    def fails(_: Any) -> None:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await workers.run(fails, "key")
    workers.close()
