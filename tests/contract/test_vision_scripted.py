"""The scripted sampler takes images as the real server does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from bench.scripted import ScriptedSampler, cycle
from tests.contract.client import WireClient
from tests.contract.vision_suite import CHECKS, IMAGE, VIDEO, WORD, Check, Target

pytestmark = pytest.mark.quick


@pytest.fixture(params=["incremental", "cumulative"])
async def target(request: pytest.FixtureRequest) -> AsyncIterator[Target]:
    async with (
        ScriptedSampler(
            script=cycle(stop_id=300, every=20, vocabulary=200),
            incremental=request.param == "incremental",
            image_token=IMAGE,
            media_words=[WORD, [VIDEO]],
        ) as sampler,
        aiohttp.ClientSession() as session,
    ):
        yield Target(client=WireClient(sampler.url, session))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_scripted_sampler(target: Target, check: Check) -> None:
    await check(target)
