"""The hand-out of outside attempts: one worker's request gets one attempt, in every life."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from engine.core.trajectory.log import AttemptLog
from engine.serving.ingress.agents import Agents
from engine.serving.ingress.keys import Keys
from tests.support.outside import SAMPLING
from tests.support.waiting import until
from toolwright.recipe import Agent, Limits

pytestmark = pytest.mark.quick

CONTEXT: Any = SimpleNamespace(
    rules=SimpleNamespace(limits=Limits(), codec=None),
    pool=SimpleNamespace(release=lambda _name: None),
)
ASSIGNMENT: Any = SimpleNamespace(sampling=SAMPLING, iteration="")


async def on_disk() -> None:
    """The journal of these tests is always on disk."""


async def unrecorded(_attempt: str) -> int:
    """No attempt of these tests has a record."""
    return 0


async def test_a_request_repeated_before_its_attempt_goes_on_waits_for_it() -> None:
    log, other = AttemptLog("t/1"), AttemptLog("t/2")
    life = Agents(Keys(b"secret"), on_disk, unrecorded)
    first = asyncio.create_task(life.run(Agent(), CONTEXT, ASSIGNMENT, log))
    assert (await life.take("w/1", 1.0)).name == "t/1"  # type: ignore[union-attr]
    life.stop()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)

    life = Agents(Keys(b"secret"), on_disk, unrecorded)
    life.expect([log])
    taking = asyncio.create_task(life.take("w/1", 60.0))
    rest = [asyncio.create_task(life.run(Agent(), CONTEXT, ASSIGNMENT, other))]
    await until(lambda: life.waiting == 1, "another attempt")
    assert await life.take("w/1", 0.001) is None
    rest.append(asyncio.create_task(life.run(Agent(), CONTEXT, ASSIGNMENT, log)))
    taken = await taking
    assert taken is not None
    assert taken.name == "t/1"
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
