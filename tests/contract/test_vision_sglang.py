"""The real SGLang server on CPU with a tiny Qwen2-VL: its wire, and a whole engine before it.

One server is started for the whole file.
"""

from __future__ import annotations

import base64
import itertools
import json
import string
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from PIL import Image

from tests.contract import real_sampler
from tests.contract.client import WireClient
from tests.contract.vision_suite import CHECKS, IMAGE, ONE, Check, Target, picture
from tests.support.engines import running
from tests.support.net import free_port
from tests.support.recipes import recipe_tables, write_recipe
from tests.support.tools import ToolDouble, serving
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Author

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


CAMERA = pb.ToolDescriptor(
    name="camera",
    stop_strings=list(string.ascii_letters),
    action_format=pb.ActionFormat(raw=pb.RawFormat()),
)
"""Ends an action at any letter: even a policy that knows nothing calls it."""


async def test_an_engine_shows_it_images(url: str, model: Path, tmp_path: Path) -> None:
    """56 x 56 pixels are 4 tokens of this model, 112 x 56 are 8. Of four random policies one at
    least calls the tool and goes on with what it shows."""
    for name, size in {"a.png": (56, 56), "b.png": (112, 56)}.items():
        Image.new("RGB", size, "red").save(tmp_path / name)
    row: dict[str, Any] = {"prompt": "<image> or <image>?", "images": ["a.png", "b.png"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    shown = base64.b64decode(picture(56, 112, "green").partition(",")[2])

    def look(request: pb.CallToolRequest) -> pb.CallResult:
        part = pb.ObservationPart(media=pb.InlineMedia(media_type="image/png", data=shown))
        return pb.CallResult(observation=[part], valid=True, tool="camera")

    async with serving(ToolDouble(look, tools=[CAMERA])) as tools:
        tables = recipe_tables(
            policy=model,
            sampler=url,
            tools={"camera": tools.address},
            engine=f"127.0.0.1:{free_port()}",
        )
        tables["run"] |= {"steps": 1, "groups_per_step": 1, "group_size": 4}
        limits = {"turns": 2, "action": 64, "response": 400, "model": 1000, "image_tokens": 64}
        tables["task"] |= {"source": "rows.jsonl", "limits": limits}
        tables["sampler"]["timeout_s"] = 100.0
        async with running(write_recipe(tmp_path, tables)) as engine:
            (group,) = await engine.learner.lease(await engine.learner.version(), wait=100.0)
            refs = [trajectory.shown_media for trajectory in group.members]
            blobs = [await engine.learner.blob(ref.blob.sha256) for ref in max(refs, key=len)]
    assert blobs[:3] == [*((tmp_path / name).read_bytes() for name in ("a.png", "b.png")), shown]
    assert any(
        [s.author for s in t.sequences[0].segments[:4]]
        == [Author.PROMPT, Author.MODEL, Author.TOOL, Author.MODEL]
        and t.shown_media[2].placeholder_tokens == 8
        for t in group.members
    )
    for trajectory in group.members:
        prompt, *_ = trajectory.sequences[0].segments
        assert [ref.placeholder_tokens for ref in prompt.media] == [4, 8]
        assert prompt.token_ids.count(IMAGE) == 12
        assert trajectory.response_tokens > 0
