"""The real SGLang on CPU and the learner agree on what a Qwen2.5-VL sees, over a publish.

One server samples for an engine that shows images in prompts and in observations; the learner
trains the tower too, and what it publishes goes back to the server.
"""

from __future__ import annotations

import asyncio
import json
import string
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contract import real_sampler
from tests.integration.learner.seeing import SIZES, load_seeing, picture, write_seeing_model
from tests.integration.learner.test_run import metrics
from tests.support.engines import running
from tests.support.net import free_port
from tests.support.policy import write_vision_policy
from tests.support.recipes import recipe_tables, write_recipe
from tests.support.tools import ToolDouble, serving
from toolwright.tool.v1 import tool_pb2 as pb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CAMERA = pb.ToolDescriptor(
    name="camera",
    stop_strings=list(string.printable),
    action_format=pb.ActionFormat(raw=pb.RawFormat()),
)
"""Ends an action at any character: even a policy that knows nothing calls it."""
FIRST, SECOND, SHOWN = (picture(*size, seed=seed) for seed, size in enumerate(SIZES))
MARKS = ("vision_start", "vision_end", "image", "video")


def write_whole_policy(folder: Path) -> Path:
    """With tokenizer, chat template and weights."""
    write_vision_policy(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    marks = [config[f"{name}_token_id"] for name in MARKS]
    return write_seeing_model(folder, marks=marks, vocab_size=320, max_position_embeddings=4096)


def look(_request: pb.CallToolRequest) -> pb.CallResult:
    part = pb.ObservationPart(media=pb.InlineMedia(media_type="image/png", data=SHOWN))
    return pb.CallResult(observation=[part], valid=True, tool="camera")


def write_task(folder: Path) -> None:
    (folder / "a.png").write_bytes(FIRST)
    (folder / "b.png").write_bytes(SECOND)
    row: dict[str, Any] = {"prompt": "<image> or <image>?", "images": ["a.png", "b.png"]}
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")


REWARD = """
def score(trajectory):
    return float(trajectory.index % 2)
"""
"""Every group has a signal, whatever its policy says."""


async def learn(recipe: Path) -> None:
    """`learner run`, in a process of its own."""
    learner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "learner.cli", "run", str(recipe)), stderr=asyncio.subprocess.PIPE
    )
    _out, told = await learner.communicate()
    assert learner.returncode == 0, told.decode()[-3000:]


async def test_sampler_and_learner_agree(tmp_path: Path) -> None:
    """Largest gap of a token's log-prob in float32, before the tower was trained and after."""
    policy = write_whole_policy(tmp_path / "policy")
    write_task(tmp_path)
    log = tmp_path / "server.log"
    with real_sampler.serve(policy, log, "--image-processor-backend", "pil") as url:
        async with serving(ToolDouble(look, tools=[CAMERA])) as tools:
            tables = recipe_tables(
                policy=policy,
                sampler=url,
                tools={"camera": tools.address},
                engine=f"127.0.0.1:{free_port()}",
            )
            tables["run"] |= {"steps": 2, "groups_per_step": 2, "group_size": 4}
            limits = {"turns": 3, "action": 32, "response": 400, "model": 1000, "image_tokens": 64}
            tables["task"] |= {"source": "rows.jsonl", "limits": limits}
            tables["sampler"]["timeout_s"] = 100.0
            tables["learner"] = {"vision": "trained", "optimizer": {"lr": 1e-3}}
            recipe = write_recipe(tmp_path, tables)
            (tmp_path / "my_reward.py").write_text(REWARD, encoding="utf-8")
            async with running(recipe):
                await learn(recipe)
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == [1, 2]
    assert not any(line["skipped_update"] for line in lines)
    assert all(line["gap_tokens"] > 30 for line in lines)
    assert all(line["gap_max"] < 1e-5 for line in lines), [line["gap_max"] for line in lines]
    before, after = load_seeing(policy).state_dict(), load_seeing(tmp_path / "run/final")
    tower = [name for name in before if name.startswith("model.visual.")]
    assert all(not torch.equal(before[name], after.state_dict()[name]) for name in tower)
