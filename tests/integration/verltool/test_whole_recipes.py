"""VerlTool's whole recipes: `engine check` and a step's rollouts, on rows of the published layouts.

A copy of the recipes gets its `data/` by the commands of docs/reproduce/verltool.md. Their files
have rows of ours in the layout of the published ones. Tools are real, the policy is scripted.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image
from typer.testing import CliRunner

from bench.scripted import ScriptedSampler, ScriptRequest
from engine.config import EngineTable
from engine.core.text.codec import HuggingFaceCodec
from engine.offline.check.command import check
from tasks.cli import app
from tests.support.dialogue import said
from tests.support.engines import running
from tests.support.net import free_port
from tests.support.policy import write_policy, write_vision_policy
from toolwright.imports import load_file
from toolwright.process.packaged import packaged
from toolwright.recipe import Recipe, load_recipe
from toolwright.types import StopReason

pytestmark = pytest.mark.slow

RECIPES = packaged("recipes")
WHOLE = (
    "deepsearch/evaluate_pages",
    "deepsearch/paper",
    "math/paper",
    "math/paper_dapo",
    "math/simpletir",
    "search/paper",
    "search/paper_dapo",
    "search/sweeps",
    "sql/paper",
    "together/math_sql",
    "together/math_visual",
    "visual/paper",
)
END = "<|im_end|>"
CROP = '{"name": "crop_image", "arguments": {"bbox_2d": [0, 0, 40, 40], "target_image": 1}}'
SPEECH: Mapping[str, tuple[str, str]] = {
    "deepmath": ("```python\nprint(6)\n```\n```output", rf"\boxed{{6}}{END}"),
    "search_r1": ("<search> Ada </search>", "<answer> Ada </answer>"),
    "skyrl_sql": (
        "<think>a</think><sql>SELECT 1</sql>",
        "<think>b</think><solution>SELECT name FROM people</solution>",
    ),
    "pixel_reasoner": (f"<tool_call>{CROP}</tool_call>", rf"\boxed{{Ada}}{END}"),
    "hard_search": ("<python>print(6)</python>", rf"<answer>\boxed{{Ada}}</answer>{END}"),
}
"""A call and the answer after it, by the set that a question is from."""
TRAINING = {"math": "deepmath", "search": "search_r1", "sql": "skyrl_sql",
            "visual": "pixel_reasoner", "deepsearch": "hard_search"}  # fmt: skip
"""Set of data/train.jsonl by the recipe's folder, and of data/TASK_train.jsonl by the task."""
SEARCH = ("nq", "triviaqa", "popqa", "hotpotqa", "2wiki", "musique", "bamboogle")
GOLD_ROWS = ("skyrl_sql", "spider")
"""Sets that questions.py reads, which keeps the gold query's rows."""
PRINTED = "limits.turns x observation = "
"""A warning about table 14's own lengths, such as 8,196 tokens for five observations of 4,096."""


def row_of(name: str, number: int) -> dict[str, Any]:
    """A row in the published layout. Its question names the set, by which the policy speaks."""
    asked = f"{name} question {number}?"
    prompt = [{"role": "user", "content": asked}]
    truth = {"style": "rule", "ground_truth": "Ada"}
    if name == "deepmath":
        return {"question": asked, "final_answer": "6", "difficulty": 5.0, "topic": "Algebra"}
    if name == "search_r1":
        target = {"style": "rule", "ground_truth": {"target": ["Ada"]}}
        return {"data_source": "nq", "prompt": prompt, "reward_model": target, "id": f"t{number}"}
    if name == "tool_star":
        return {"data_source": "grpo_mix", "question": asked, "ability": "math",
                "reward_model": truth, "extra_info": {"index": None}}  # fmt: skip
    if name == "hard_search":
        extra = {"index": number, "question": asked}
        return {"data_source": "x", "prompt": prompt, "reward_model": truth, "extra_info": extra}
    if name == "skyrl_sql":
        gold = {"ground_truth": "SELECT name FROM people"}
        return {"prompt": prompt, "db_id": "bank", "reward_spec": gold}
    if name == "spider":
        return {"question": asked, "query": "SELECT name FROM people", "db_id": "bank"}
    if name in ("pixel_reasoner", "v_star"):
        return {"qid": f"q{number}", "question": asked, "image": ["a/1.png"], "answer": ["Ada"],
                "is_video": False}  # fmt: skip
    if name == "gaia":
        return {"task_id": f"t{number}", "Question": asked, "Level": 1, "Final answer": "Ada"}
    if name.startswith("flashrag_"):
        return {"id": f"t{number}", "question": asked, "golden_answers": ["Ada"]}
    if name == "gsm8k":
        return {"question": asked, "answer": "2 + 4 = 6\n#### 6"}
    return {"question": asked, "problem": asked, "answer": "6"}


def set_of(file: str, folder: str) -> str:
    """The set whose rows a file of `data/` holds, as `tasks list` calls it."""
    if file.endswith("train"):
        return TRAINING[file.removesuffix("train").rstrip("_") or folder]
    if file.startswith("spider"):
        return "spider"
    return f"flashrag_{file}" if file in SEARCH and folder == "search" else file


def published(folder: Path, name: str, rows: int) -> Path:
    """The set's file as it is downloaded."""
    kept = [row_of(name, number) for number in range(rows)]
    if name in ("deepmath", "search_r1", "hard_search", "skyrl_sql", "pixel_reasoner", "v_star"):
        path = folder / f"{name}.parquet"
        pa.parquet.write_table(pa.Table.from_pylist(kept), path)
    else:
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    return path


def convert(raw: Path, recipes: Path, name: str, rows: int, output: Path) -> None:
    """What the page's command makes of a published file."""
    file = published(raw, name, rows)
    if name in GOLD_ROWS:
        make = load_file(recipes / "verltool/sql/questions.py").main
        make(name, file, databases=output.parents[1] / "databases", output=output, gold=None)
        return
    images = ("--images", str(raw / "images"), "--images", str(raw / "videos"))
    words = ["convert", name, str(file), str(output)]
    done = CliRunner().invoke(app, words + list(images) * (name in ("pixel_reasoner", "v_star")))
    assert done.exit_code == 0, done.output


def fill(recipe: Recipe, recipes: Path, raw: Path) -> None:
    """All that the recipe says is the user's: files of `data/`, databases, an index."""
    folder = recipe.folder
    (raw / "images/a").mkdir(parents=True)
    Image.new("RGB", (64, 64), (9, 9, 99)).save(raw / "images/a/1.png")
    (folder / "databases/bank").mkdir(parents=True)
    with sqlite3.connect(folder / "databases/bank/bank.sqlite") as bank:
        bank.execute("CREATE TABLE people (name TEXT)")
        bank.execute("INSERT INTO people VALUES ('Ada')")
    bank.close()
    wanted = {task.source: 3 for task in recipe.shared.each_task.values()}
    for suite in recipe.table("engine", EngineTable).evaluation.suites:
        wanted[suite.source] = max(suite.n, wanted.get(suite.source, 0))
    for source, rows in wanted.items():
        output = folder / source
        assert (output.parent, output.suffix) == (folder / "data", ".jsonl")
        name = set_of(output.stem, folder.name)
        # 500 rows of DeepMath are held out.
        convert(raw, recipes, name, rows + 500 * (name == "deepmath"), output)
    if any("search.index=index" in tool.serve for tool in recipe.shared.tools.values()):
        passage = {"id": "0", "contents": '"Ada"\nAda wrote the first program.'}
        (raw / "corpus.jsonl").write_text(json.dumps(passage) + "\n", encoding="utf-8")
        words = ("index", "build", raw / "corpus.jsonl", "--output", folder / "index")
        code = "from toolsvc.cli import main; main()"
        command = [sys.executable, "-c", code, *map(str, words), "--kind", "bm25"]
        assert subprocess.run(command, check=False).returncode == 0


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    """A copy of the recipes, which the run's files are written into."""
    ignored = shutil.ignore_patterns("run*", "played", "__pycache__")
    return Path(shutil.copytree(RECIPES, tmp_path / "recipes", ignore=ignored))


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"


def speaking(codec: HuggingFaceCodec) -> Any:
    """The script of a policy that calls once and answers, as the question's set asks for it."""

    def script(request: ScriptRequest) -> Sequence[int]:
        text = codec.decode(request.input_ids)
        call, answer = next(ways for name, ways in SPEECH.items() if f"{name} question" in text)
        asked = text[text.index(" question") :]
        reply = answer if call in asked else call
        return codec.encode(reply)[said(codec, asked, reply) :]

    return script


@pytest.mark.parametrize("name", WHOLE)
async def test_a_whole_recipe_is_in_order_and_samples_a_step(
    name: str, recipes: Path, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERPER_API_KEY", "none")
    file = recipes / "verltool" / f"{name}.toml"
    write = write_vision_policy if "visual" in name else write_policy
    policy = write(tmp_path / "policy")
    base = load_recipe(file)
    fill(base, recipes, raw)
    codec = HuggingFaceCodec(policy)
    mark = codec.image_mark
    async with ScriptedSampler(
        script=speaking(codec),
        vocab_size=codec.vocab_size,
        image_token=mark.placeholder if mark else None,
        media_words=[codec.encode(word) for word in ("<image>", "<|video_pad|>")],
    ) as sampler:
        here = (
            f"policy.model={policy}",
            f"run.engine=127.0.0.1:{free_port()}",
            f"sampler.endpoints=['{sampler.url}']",
        )
        recipe = load_recipe(file, here)
        table = recipe.table("engine", EngineTable)
        lines = await asyncio.to_thread(lambda: list(check(recipe, table, connect=False)))
        warnings = [line for line in lines if line.startswith("warning") and PRINTED not in line]
        assert not warnings, "\n".join(lines)
        tasks = recipe.shared.each_task
        small = (f"run.groups_per_step={len(tasks)}", "run.group_size=2")
        async with running(file, *here, *small, "engine.evaluation.suites=[]") as run:
            groups = await run.learner.lease(run.version, count=len(tasks), wait=120)
    assert {group.members[0].task.name for group in groups} == set(tasks)
    for member in (member for group in groups for member in group.members):
        ended = (StopReason.ANSWERED, StopReason.TOOL_SIGNALED_DONE)
        assert member.stop_reason in ended, member.events
        assert member.calls[0].outcome.valid, member.calls[0].outcome
        assert member.reward > 0, member.reward_parts
        assert not member.masked
