"""The real SGLang server on CPU, held to the same checks as the scripted sampler.

One server is started for the whole file. A check that fails here and passes for the scripted
sampler means that the scripted one promises too much.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.contract import real_sampler
from tests.contract.client import WireClient
from tests.contract.sampler.target import Target
from tests.contract.sampler_suite import CHECKS, Check
from tests.support.other_weights import write_other_weights

pytestmark = pytest.mark.slow

SERIAL = itertools.count()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    one = real_sampler.write_model(folder / "one", 1)
    return one, write_other_weights(one, folder / "two")


@pytest.fixture(scope="module")
def url(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("sglang") / "server.log"
    with real_sampler.serve(models[0], log) as running:
        yield running


@pytest.fixture
async def target(url: str, models: tuple[Path, Path]) -> AsyncIterator[Target]:
    async with aiohttp.ClientSession() as session:
        client = WireClient(url, session)
        yield Target(client=client, weights=models, incremental=True, serial=SERIAL)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_sglang(target: Target, check: Check) -> None:
    await check(target)
