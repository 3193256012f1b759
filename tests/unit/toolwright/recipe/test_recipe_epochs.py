"""`run.epochs`: steps from the rows of the tasks' files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from engine.config import EngineTable
from tests.support.recipes import merged, to_toml
from toolwright.recipe import RecipeError, load_recipe

pytestmark = pytest.mark.quick

TABLES: dict[str, Any] = {
    "run": {"name": "r", "folder": "out", "epochs": 2, "groups_per_step": 4, "group_size": 2},
    "policy": {"model": "weights"},
    "task": {"source": "rows.jsonl", "reward": "./my_reward.py:score"},
    "sampler": {"endpoints": ["http://127.0.0.1:1"]},
}


def recipe(folder: Path, extends: str = "", **changes: Any) -> Path:
    file = folder / "recipe.toml"
    text = to_toml(merged(TABLES, changes))
    file.write_text((f'extends = ["{extends}"]\n' if extends else "") + text, encoding="utf-8")
    return file


def rows(file: Path, count: int) -> None:
    lines = [json.dumps({"question": str(n), "answer": "a"}) for n in range(count)]
    file.write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def steps(file: Path, *overrides: str) -> int:
    return load_recipe(file, overrides).steps


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (6, 3), (7, 4), (8, 4)])
def test_each_row_is_read_so_often(tmp_path: Path, count: int, expected: int) -> None:
    rows(tmp_path / "rows.jsonl", count)
    assert steps(recipe(tmp_path)) == expected


def test_rows_of_parquet_and_of_several_tasks(tmp_path: Path) -> None:
    """Of 4 groups a step one is of `few` and three are of `many`: 10 rows twice, 3 a step."""
    table = pa.Table.from_pylist([{"question": "q", "answer": "a"}] * 10)
    pyarrow.parquet.write_table(table, tmp_path / "many.parquet")
    rows(tmp_path / "few.jsonl", 3)
    tasks = {
        "few": {"source": "few.jsonl", "share": 1},
        "many": {"source": "many.parquet", "share": 3},
    }
    assert steps(recipe(tmp_path, tasks=tasks, task={"source": "unused.jsonl"})) == 7


def test_a_file_that_grew_gives_more_steps(tmp_path: Path) -> None:
    file = recipe(tmp_path)
    for count in (4, 20):
        rows(tmp_path / "rows.jsonl", count)
        assert steps(file) == count / 2


def test_dropped_groups_are_read_in_addition(tmp_path: Path) -> None:
    """Dynamic sampling replaces a group within its step, so the steps stay the same."""
    rows(tmp_path / "rows.jsonl", 8)
    assert steps(recipe(tmp_path), "task.dynamic_sampling={}") == steps(recipe(tmp_path)) == 4


def test_one_of_the_two_counts(tmp_path: Path) -> None:
    """An override over the file, the file over a fragment; 0 steps count, too."""
    rows(tmp_path / "rows.jsonl", 8)
    assert steps(recipe(tmp_path), "run.steps=9") == 9
    assert steps(recipe(tmp_path), "run.steps=0") == 0
    assert steps(recipe(tmp_path), "run.epochs=1") == 2
    (tmp_path / "below.toml").write_text("[run]\nsteps = 300\n", encoding="utf-8")
    assert steps(recipe(tmp_path, extends="below.toml")) == 4
    with pytest.raises(RecipeError, match=r"run\.steps = 3 and run\.epochs = 2: give one of them"):
        load_recipe(recipe(tmp_path, run={"steps": 3}))


def test_every_process_writes_the_same_steps(tmp_path: Path) -> None:
    rows(tmp_path / "rows.jsonl", 8)
    read = load_recipe(recipe(tmp_path))
    read.write_resolved("engine", EngineTable())
    found = json.loads((tmp_path / "out/engine.resolved.json").read_text(encoding="utf-8"))
    assert (found["shared"]["run"]["steps"], found["shared"]["run"]["epochs"]) == (4, 2)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (
            {"source": "./task.py:rows"},
            "task.source = './task.py:rows' is a function: set run.steps",
        ),
        ({"source": "submitted"}, "task.source = 'submitted' is not a file: set run.steps"),
        ({"source": "none.jsonl"}, "none.jsonl cannot be read .*make the file first, or set"),
        ({"source": "cut.parquet"}, "cut.parquet cannot be read .*is not Parquet"),
    ],
)
def test_rows_that_cannot_be_counted(tmp_path: Path, task: dict[str, str], words: str) -> None:
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    with pytest.raises(RecipeError, match=words):
        steps(recipe(tmp_path, task=task))
    assert steps(recipe(tmp_path, task=task), "run.steps=1") == 1


@pytest.mark.parametrize("epochs", [0, -1, '"two"'])
def test_epochs_are_at_least_one(tmp_path: Path, epochs: Any) -> None:
    rows(tmp_path / "rows.jsonl", 8)
    with pytest.raises(RecipeError, match=r"run\.epochs"):
        load_recipe(recipe(tmp_path), (f"run.epochs={epochs}",))


def test_rows_are_counted_where_the_steps_are_read(tmp_path: Path) -> None:
    read = load_recipe(recipe(tmp_path))
    rows(tmp_path / "rows.jsonl", 8)
    counted = read.counted()
    (tmp_path / "rows.jsonl").unlink()
    assert counted.steps == counted.shared.run.steps == 4
    with pytest.raises(RecipeError, match="make the file first"):
        _ = read.steps


def test_a_run_has_a_length(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text(to_toml(merged(TABLES, {"run": {"epochs": None}})), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"run\.steps: missing"):
        load_recipe(file)
