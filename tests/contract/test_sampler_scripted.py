"""The scripted sampler keeps every promise of the wire, in both stream shapes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from bench.scripted import ScriptedSampler, Timing, cycle
from tests.contract.client import WireClient
from tests.contract.sampler.target import VOCABULARY, Target
from tests.contract.sampler_suite import CHECKS, Check

pytestmark = pytest.mark.quick


@pytest.fixture(params=["incremental", "cumulative"])
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    incremental = request.param == "incremental"
    weights = (tmp_path / "one", tmp_path / "two")
    for folder in weights:
        folder.mkdir()
    async with (
        ScriptedSampler(
            script=cycle(stop_id=260, every=20, vocabulary=VOCABULARY),
            timing=Timing(tokens_per_second=300),
            incremental=incremental,
            context_length=4096,
        ) as sampler,
        aiohttp.ClientSession() as session,
    ):
        client = WireClient(sampler.url, session)
        yield Target(client=client, weights=weights, incremental=incremental)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_scripted_sampler(target: Target, check: Check) -> None:
    await check(target)
