"""SE-Search's, Search-R1's, AutoRefine's and MTR's whole recipes: `engine check` and a step's
rollouts, on rows of the published layouts.

Rows are ours, in the layout of Search-R1's Parquet file and of FlashRAG's JSONL files. The policy
is scripted, and so is the model that makes and plays MTR's tools. The index is real.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from bench.scripted import ScriptedSampler, ScriptRequest
from engine.config import EngineTable
from engine.core.text.codec import HuggingFaceCodec
from engine.offline.check.command import check
from tasks.cli import app
from tests.support.chat_endpoint import chat_endpoint
from tests.support.dialogue import said
from tests.support.engines import running
from tests.support.net import free_port
from tests.support.policy import write_policy
from toolwright.process.packaged import packaged
from toolwright.recipe import load_recipe
from toolwright.types import StopReason

pytestmark = pytest.mark.slow

QUESTION = "Who wrote the first program?"
SEARCH = "<think> I look. </think><search> Who wrote the first program </search>"
TOOL_CALL = '<tool_call>{"name": "find", "arguments": {"topic": "program"}}</tool_call>'
PYTHON_CALL = '<think>I need a fact.</think>find(topic="program")<|im_end|>'
SPEECH: Mapping[str, Sequence[str]] = {
    "se_search": (SEARCH, "<memory> Ada </memory><answer> Ada </answer>"),
    "search_r1": (SEARCH, "<think> Ada. </think><answer> Ada </answer>"),
    "auto_refine": (SEARCH, "<refine> Ada </refine><answer> Ada </answer>"),
    "mtr": (
        f"<think>I need a fact.</think>{TOOL_CALL}",
        "<think>So the answer is Ada.</think><answer>Ada</answer>",
    ),
    "mtr without tags": (
        PYTHON_CALL,
        "<think>So the answer is Ada.</think><answer>Ada</answer>",
    ),
}
"""A call, and the answer after its result, by the recipe and how it is said."""
MADE = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "description": "Looks a topic up.",
            "parameters": {
                "type": "object",
                "properties": {"topic": {"type": "string"}},
                "required": ["topic"],
            },
        },
        "returns": {"type": "object", "properties": {"text": {"type": "string"}}},
    }
]


def plays(body: dict[str, Any]) -> str:
    """ToolMaker's answer or ToolActor's, by the system prompt."""
    makes = "design tools" in body["messages"][0]["content"]
    return json.dumps(MADE if makes else {"text": "Ada wrote it."})


def published(raw: Path, name: str, split: str, rows: int) -> Path:
    """The file of a set, as it is downloaded. split: stands in the questions of a test set."""
    if name == "search_r1":
        row = {
            "data_source": "nq",
            "prompt": [{"role": "user", "content": QUESTION}],
            "reward_model": {"style": "rule", "ground_truth": {"target": ["Ada"]}},
            "question": QUESTION,
        }
        pa.parquet.write_table(pa.Table.from_pylist([row] * rows), raw / "train.parquet")
        return raw / "train.parquet"
    file = raw / f"{name}.jsonl"
    about = QUESTION if split == "train" else f"{split}: {QUESTION}"
    lines = (
        json.dumps({"id": f"t{number}", "question": about, "golden_answers": ["Ada"]})
        for number in range(rows)
    )
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def fill(folder: Path, raw: Path, sizes: Mapping[str, int]) -> None:
    """data/train.jsonl, data/NAME.jsonl of each suite, and the index. sizes: rows by source."""
    for source, rows in {**sizes, "data/train.jsonl": 3}.items():
        name = f"flashrag_{Path(source).stem}"
        if name == "flashrag_train":
            name = "flashrag_hotpotqa" if folder.name == "mtr" else "search_r1"
        words = [
            "convert",
            name,
            str(published(raw, name, Path(source).stem, rows)),
            str(folder / source),
        ]
        done = CliRunner().invoke(app, [*words, "--metadata", "question"])
        assert done.exit_code == 0, done.output
    if folder.name == "mtr":
        return
    passage = {"id": "0", "contents": '"Program"\nAda wrote the first program.'}
    (raw / "corpus.jsonl").write_text(json.dumps(passage) + "\n", encoding="utf-8")
    words = ["index", "build", str(raw / "corpus.jsonl"), "--output", str(folder / "index")]
    code = "from toolsvc.cli import main; main()"
    subprocess.run([sys.executable, "-c", code, *words, "--kind", "bm25"], check=True)


def speaking(codec: HuggingFaceCodec, replies: Sequence[str]) -> Any:
    """The script of a policy that calls once and answers after the result."""

    def script(request: ScriptRequest) -> Sequence[int]:
        text = codec.decode(request.input_ids)
        asked = text[text.rindex(QUESTION) :] if text.count(QUESTION) == 1 else text
        reply = replies[min(request.turn, 1)]
        return codec.encode(reply)[said(codec, asked, reply) :]

    return script


@pytest.mark.parametrize("way", SPEECH)
async def test_a_whole_recipe_is_in_order_and_samples_a_step(way: str, tmp_path: Path) -> None:
    name = way.partition(" ")[0]
    ignored = shutil.ignore_patterns("run*", "played", "__pycache__", "data", "index")
    recipes = Path(shutil.copytree(packaged("recipes"), tmp_path / "recipes", ignore=ignored))
    raw = tmp_path / "raw"
    raw.mkdir()
    file = recipes / name / "paper.toml"
    policy = write_policy(tmp_path / "policy")
    base = load_recipe(file, [f"policy.model={policy}"])
    suites = base.table("engine", EngineTable).evaluation.suites
    fill(file.parent, raw, {suite.source: suite.n for suite in suites})
    codec = HuggingFaceCodec(policy)
    async with (
        chat_endpoint(plays) as endpoint,
        ScriptedSampler(
            script=speaking(codec, SPEECH[way]), vocab_size=codec.vocab_size
        ) as sampler,
    ):
        here = [
            f"policy.model={policy}",
            f"run.engine=127.0.0.1:{free_port()}",
            f"sampler.endpoints=['{sampler.url}']",
        ]
        if name == "mtr":
            options = "tools.played.options.simulated"
            here += [f"{options}.{key}endpoint={endpoint.url}" for key in ("", "maker.")]
        recipe = load_recipe(file, here)
        table = recipe.table("engine", EngineTable)
        lines = await asyncio.to_thread(lambda: list(check(recipe, table, connect=False)))
        assert not [line for line in lines if line.startswith("warning")], "\n".join(lines)
        small = ("run.groups_per_step=1", "run.group_size=2", "engine.evaluation.suites=[]")
        async with running(file, *here, *small) as run:
            (group,) = await run.learner.lease(run.version, count=1, wait=120)
    for member in group.members:
        assert member.stop_reason is StopReason.ANSWERED, member.events
        assert member.calls[0].outcome.valid, member.calls[0].outcome
        assert member.reward > 0, member.reward_parts
        assert not member.masked
        if name == "mtr":
            assert member.calls[0].action.endswith(TOOL_CALL)
            assert {part.name: part.value for part in member.reward_parts}["answer"] == 1.0
