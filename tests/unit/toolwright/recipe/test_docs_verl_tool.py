"""docs/start/verl-tool.md names every option of VerlTool's agent, keys that there are, and
variations and functions that work."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from console.ablate.ladder import LadderOptions, ladder_of
from tests.support.docs import DOCS, example
from tests.support.docs_names import TABLES, has_key
from tests.support.recipes import to_toml
from toolwright.imports import load_file
from toolwright.recipe.diagnostics.synonyms import of_keys

PAGE = (DOCS / "start" / "verl-tool.md").read_text(encoding="utf-8")
ANYWHERE = re.compile(rf"`((?:{'|'.join(TABLES)})(?:\.[A-Za-z_]+)+)(?: = [^`]*)?`")
"""A key of ours, alone or with a value."""


OF_A_TASK = {"task.answers", "task.data_source"}
"""Fields of the record, which the page names in the same way."""


def section(heading: str) -> str:
    return re.split(r"^## ", PAGE.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]


def first_cells(heading: str) -> set[str]:
    rows = [line for line in section(heading).splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}


@pytest.mark.parametrize("key", sorted(set(ANYWHERE.findall(PAGE)) - OF_A_TASK))
def test_a_key_of_ours_on_the_page_is_one(key: str) -> None:
    assert has_key(key), key


@pytest.mark.parametrize(
    ("table", "key"),
    [("limits", "task.limits"), ("task", "task"), ("tool", "tools.NAME"), ("engine", "engine")],
)
def test_what_engine_check_calls_a_word_is_what_the_page_calls_it(table: str, key: str) -> None:
    rows = [line for line in section("The agent").splitlines() if line.startswith("| `")]
    for ours, theirs in of_keys(table).items():
        for word in first_cells("The agent").intersection(theirs):
            (row,) = (row for row in rows if f"`{word}`" in row.split(" | ")[0])
            assert f"`{key}.{ours}" in row, row


def test_every_variation_changes_what_its_name_says(tmp_path: Path) -> None:
    """Over the preset of the search task, which the page takes for its base."""
    block = example("start/verl-tool.md", "# ablations.toml", "toml")
    for name in ("score.py", "data.jsonl"):
        (tmp_path / name).touch()
    (tmp_path / "weights").mkdir()
    tables = {
        "run": {"name": "own", "folder": "run", "steps": 3, "engine": "127.0.0.1:0"},
        "policy": {"model": "weights"},
        "task": {"source": "data.jsonl", "reward": "./score.py:score"},
        "sampler": {"endpoints": ["http://127.0.0.1:0"]},
        "engine": {"max_concurrent": 8},
    }
    extends = 'extends = ["presets/vt_search.toml"]\n'
    (tmp_path / "recipe.toml").write_text(extends + to_toml(tables), encoding="utf-8")
    (tmp_path / "ablations.toml").write_text(block, encoding="utf-8")
    ladder = ladder_of(LadderOptions(recipe=tmp_path / "ablations.toml", seeds=1))
    changed = {one.name: set(one.changes) for one in ladder.variations}
    stops = {"task.stops", "task.stops.tool_exception", "task.stops.tool_timeout"}
    assert changed == {
        "base": set(),
        "observation-512": {"task.limits.observation"},
        "keep-head": {"engine.observation_keep"},
        "void-masked": {"task.mask_void"},
        "overlong-masked": {"task.mask_overlong"},
        "errors-masked": stops,
        "errors-worthless": stops,
        "void-outside": {"task.mask_void", "task.exclude_masked_from_baseline"},
        "failures-inside": {"task.exclude_masked_from_baseline"},
    }


def test_the_function_of_the_page_reads_a_row_as_verl_writes_it(tmp_path: Path) -> None:
    block = example("start/verl-tool.md", "# questions.py")
    row = {
        "data_source": "spider",
        "prompt": [{"role": "user", "content": "How many?"}],
        "ability": "sql",
        "reward_model": {"style": "rule", "ground_truth": "SELECT 1"},
        "extra_info": {"db_id": "concerts", "gt_sql": "SELECT 1", "index": 0},
    }
    (tmp_path / "questions.py").write_text(block, encoding="utf-8")
    (tmp_path / "train.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    task = next(load_file(tmp_path / "questions.py").training(0))
    assert (task.messages[0]["content"], task.answers) == ("How many?", ("SELECT 1",))
    assert task.metadata == {"database": "concerts"}, "no tool is told the answer"
