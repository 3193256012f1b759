"""Adapters on the real SGLang server on CPU: the checks of the scripted sampler, and its numbers.

The server runs the plugin deploy/sglang-cpu/shims/unpinned_memory.py, without which SGLang's LoRA
does not start on a CPU.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.contract import real_sampler
from tests.contract.client import WireClient
from tests.contract.sampler.adapters import load, unload
from tests.contract.sampler.target import Target
from tests.contract.sampler_suite import ADAPTER_CHECKS, Check
from tests.support.adapters import write_adapter, write_merged

pytestmark = pytest.mark.slow

SERIAL = itertools.count()
FLAGS = ("--enable-lora", "--max-lora-rank", "8", "--lora-target-modules", "all")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A policy, and two adapters of it."""
    folder = tmp_path_factory.mktemp("models")
    model = real_sampler.write_model(folder / "model", 1)
    first = write_adapter(model, folder / "first", seed=1)
    return model, first, write_adapter(model, folder / "second", seed=2, rank=8)


@pytest.fixture(scope="module")
def url(
    folders: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    log = tmp_path_factory.mktemp("sglang") / "server.log"
    with real_sampler.serve(folders[0], log, *FLAGS) as running:
        yield running


@pytest.fixture
async def target(url: str, folders: tuple[Path, Path, Path]) -> AsyncIterator[Target]:
    async with aiohttp.ClientSession() as session:
        client = WireClient(url, session)
        yield Target(client=client, weights=folders[1:], incremental=True, serial=SERIAL)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("check", ADAPTER_CHECKS, ids=lambda check: check.__name__)
async def test_adapters(target: Target, check: Check) -> None:
    await check(target)


@pytest.mark.timeout(240)
async def test_an_adapter_is_its_merged_weights(
    target: Target, folders: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """Log-probs under an adapter are those of the weights with it merged, to float rounding."""
    model = folders[0]
    greedy = {"temperature": 0}
    for which, adapter in enumerate(folders[1:]):
        assert (await load(target, f"parity.{which}", which))[0] == 200
        body = target.body("parity", 64, lora_path=f"parity.{which}", params=greedy)
        alone = (await target.client.post("/generate", body))[1]
        plain = (await target.client.post("/generate", target.body("plain", 64, params=greedy)))[1]
        merged = write_merged(model, adapter, tmp_path / f"merged-{which}")
        await _serve(target, merged)
        said = (await target.client.post("/generate", target.body("merged", 64, params=greedy)))[1]
        await _serve(target, model)
        assert (await unload(target, f"parity.{which}"))[0] == 200
        assert alone["output_ids"] == said["output_ids"] != plain["output_ids"]
        assert _logprobs(alone) == pytest.approx(_logprobs(said), abs=2e-5)


async def _serve(target: Target, folder: Path) -> None:
    body = {"model_path": str(folder)}
    assert (await target.client.post("/update_weights_from_disk", body))[0] == 200


def _logprobs(answer: dict[str, dict[str, list[list[float]]]]) -> list[float]:
    return [one[0] for one in answer["meta_info"]["output_token_logprobs"]]
