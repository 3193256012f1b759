"""What `engine sample` writes is what `learner sft` reads: one step on it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from bench.scripted import ScriptedSampler
from engine.config import EngineTable
from engine.core.text.codec import HuggingFaceCodec
from engine.offline.collect import command
from engine.offline.collect.options import CollectionOptions
from learner.errors import DataError
from learner.imitation.traces import load_traces
from learner.intake.tokenizer_check import TokenizerCheck
from learner.sft import sft
from tests.integration.learner.models import SHAPE
from tests.support.dialogue import ANSWER, CALL, by_turn
from tests.support.policy import write_policy
from tests.support.recipes import recipe_tables, write_recipe
from tests.support.tools import ToolDouble, serving
from toolwright.recipe import load_recipe

pytestmark = pytest.mark.quick

VOCABULARY = 320


def write_whole_policy(folder: Path) -> Path:
    """A policy with tokenizer, template and random weights."""
    write_policy(folder, vocab_size=VOCABULARY)
    torch.manual_seed(0)
    config = Qwen3Config(**{**SHAPE, "vocab_size": VOCABULARY}, head_dim=16)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


async def collect(folder: Path, policy: Path) -> Path:
    """Two trajectories in a file; the recipe."""
    codec = HuggingFaceCodec(policy)
    sampler = ScriptedSampler(script=by_turn(codec, [CALL, ANSWER]), vocab_size=codec.vocab_size)
    async with sampler, serving(ToolDouble()) as double:
        tables = recipe_tables(
            policy=policy, sampler=sampler.url, tools={"python": double.address}, engine="unused:1"
        )
        sft_table = {"data": "kept", "steps": 1, "batch_size": 2, "optimizer": {"lr": 1e-2}}
        file = write_recipe(folder, {**tables, "sft": sft_table})
        recipe = load_recipe(file)
        options = CollectionOptions(output=folder / "kept", folder=folder, n=2)
        table = recipe.table("engine", EngineTable)
        await command.collect(recipe, table, options, lambda _: None)
    return file


def test_a_sampled_file_trains_the_actions_and_nothing_else(tmp_path: Path) -> None:
    policy = write_whole_policy(tmp_path / "policy")
    recipe = load_recipe(asyncio.run(collect(tmp_path, policy)))
    codec = HuggingFaceCodec(policy)
    for trace in load_traces(
        tmp_path / "kept", VOCABULARY, TokenizerCheck(policy), max_length=4096
    ).traces:
        (row,) = trace.rows
        assert codec.decode(row.tokens[row.target].tolist()) == CALL + ANSWER
    template = policy / "chat_template.jinja"
    text = template.read_text(encoding="utf-8")
    template.write_text(text + "{# another #}", encoding="utf-8")
    with pytest.raises(DataError, match=r"was written with tokenizer and chat template .*render"):
        sft(recipe)
    template.write_text(text, encoding="utf-8")
    sft(recipe)
    (line,) = (tmp_path / "run" / "sft" / "sft.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["loss"] > 0
