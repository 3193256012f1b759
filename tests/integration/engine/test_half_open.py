"""Connections to a sampler whose other end went away without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from bench.scripted import ScriptedSampler, replies
from engine.core.sampler.fleet import Fleet
from tests.chaos.harm.proxy import Mode, Proxy
from tests.support.net import free_port

pytestmark = pytest.mark.quick

SOON_S = 5.0
"""Far below the time that a control call may take."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.close()


async def test_a_control_call_does_not_wait_on_an_earlier_ones_connection(proxy: Proxy) -> None:
    async with ScriptedSampler(script=replies([[2]])) as sampler:
        link = proxy.link(free_port(), int(sampler.url.rpartition(":")[2]))
        fleet = Fleet([f"http://127.0.0.1:{link.port}"], silence=60.0, sees=False)
        await fleet.open()
        try:
            link.set(Mode.HOLE)
            link.set(Mode.PASS)
            async with asyncio.timeout(SOON_S):
                await fleet.servers[0].client.pause("abort")
            assert sampler.scheduler.paused
        finally:
            await fleet.close()
