"""The real SGLang server on CPU with a tiny Qwen2-VL.

One server is started for the whole file.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.contract import real_sampler
from tests.contract.client import WireClient
from tests.contract.vision_suite import CHECKS, ONE, Check, Target, picture

SERIAL = itertools.count()

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "vision"
    return real_sampler.write_model(folder, 1, script="tiny_vision_model.py")


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("sglang") / "server.log"
    with real_sampler.serve(model, log) as running_at:
        yield running_at


@pytest.fixture
async def target(url: str) -> AsyncIterator[Target]:
    async with aiohttp.ClientSession() as session:
        yield Target(client=WireClient(url, session), serial=SERIAL)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_sglang(target: Target, check: Check) -> None:
    await check(target)


async def test_it_looks_at_them(target: Target) -> None:
    seen = [
        (await target.ask(ONE, [picture(56, 56, colour)]))["meta_info"]["output_token_logprobs"]
        for colour in ("red", "blue", "red")
    ]
    assert seen[0][0][:2] == pytest.approx(seen[2][0][:2], abs=1e-4)
    assert seen[0][0][:2] != pytest.approx(seen[1][0][:2], abs=1e-4)
