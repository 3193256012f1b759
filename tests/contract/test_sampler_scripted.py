"""The scripted sampler keeps every promise of the wire, in both stream shapes, also with images."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from bench.scripted import ScriptedSampler, Timing, cycle
from tests.contract import vision_suite as vision
from tests.contract.client import WireClient
from tests.contract.sampler.target import VOCABULARY, Target
from tests.contract.sampler_suite import ADAPTER_CHECKS, CHECKS, Check

pytestmark = pytest.mark.quick


@pytest.fixture(params=["incremental", "cumulative"])
def incremental(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "incremental")


@pytest.fixture
async def target(incremental: bool, tmp_path: Path) -> AsyncIterator[Target]:
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


@pytest.mark.parametrize("check", ADAPTER_CHECKS, ids=lambda check: check.__name__)
async def test_scripted_sampler_of_adapters(tmp_path: Path, check: Check) -> None:
    weights = (tmp_path / "one", tmp_path / "two")
    for folder in weights:
        folder.mkdir()
        (folder / "adapter_config.json").touch()
    async with (
        ScriptedSampler(
            script=cycle(stop_id=260, every=20, vocabulary=VOCABULARY),
            timing=Timing(tokens_per_second=300),
            takes_adapters=True,
        ) as sampler,
        aiohttp.ClientSession() as session,
    ):
        client = WireClient(sampler.url, session)
        await check(Target(client=client, weights=weights, incremental=True))


@pytest.mark.parametrize("check", vision.CHECKS, ids=lambda check: check.__name__)
async def test_scripted_sampler_of_images(incremental: bool, check: vision.Check) -> None:
    async with (
        ScriptedSampler(
            script=cycle(stop_id=300, every=20, vocabulary=200),
            incremental=incremental,
            image_token=vision.IMAGE,
            media_words=[vision.WORD, [vision.VIDEO]],
        ) as sampler,
        aiohttp.ClientSession() as session,
    ):
        await check(vision.Target(client=WireClient(sampler.url, session)))
