"""The real SGLang server on CPU with a tiny Qwen2-VL: its wire, and a whole engine before it.

One server is started for the whole file.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from PIL import Image

from tests.contract import real_sampler
from tests.contract.client import WireClient
from tests.contract.vision_suite import CHECKS, IMAGE, Check, Target
from tests.support.engines import running
from tests.support.net import free_port
from tests.support.recipes import recipe_tables, write_recipe
from tests.support.tools import ToolDouble, serving

SERIAL = itertools.count()

pytestmark = pytest.mark.timeout(240)


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


async def test_an_engine_shows_it_images(url: str, model: Path, tmp_path: Path) -> None:
    """56 x 56 pixels are 4 tokens of this model, 112 x 56 are 8."""
    for name, size in {"a.png": (56, 56), "b.png": (112, 56)}.items():
        Image.new("RGB", size, "red").save(tmp_path / name)
    row: dict[str, Any] = {"prompt": "<image> or <image>?", "images": ["a.png", "b.png"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    async with serving(ToolDouble()) as tools:
        tables = recipe_tables(
            policy=model,
            sampler=url,
            tools={"python": tools.address},
            engine=f"127.0.0.1:{free_port()}",
        )
        tables["run"] |= {"steps": 1, "groups_per_step": 1, "group_size": 2}
        limits = {"action": 16, "response": 32, "model": 512, "image_tokens": 64}
        tables["task"] |= {"source": "rows.jsonl", "limits": limits}
        tables["sampler"]["timeout_s"] = 100.0
        async with running(write_recipe(tmp_path, tables)) as engine:
            (group,) = await engine.learner.lease(await engine.learner.version(), wait=100.0)
            refs = [trajectory.shown_media for trajectory in group.members]
            blob = await engine.learner.blob(refs[0][1].blob.sha256)
    assert blob == (tmp_path / "b.png").read_bytes()
    for trajectory in group.members:
        prompt, *_ = trajectory.sequences[0].segments
        assert [ref.placeholder_tokens for ref in prompt.media] == [4, 8]
        assert prompt.token_ids.count(IMAGE) == 12
        assert trajectory.response_tokens > 0
