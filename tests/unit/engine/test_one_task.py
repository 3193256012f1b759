"""Commands that work on one of a recipe's tasks are told which, and take its suites alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineTable
from engine.core.build import one_task
from engine.errors import StartupError
from engine.offline.evaluate.command import suites_of_task
from tests.support.recipes import merged, recipe_tables, write_recipe
from toolwright.recipe import Recipe, load_recipe


def recipe(folder: Path, *names: str) -> Recipe:
    tables: dict[str, Any] = recipe_tables(
        policy=Path("p"), sampler="http://127.0.0.1:1", tools={}, engine="127.0.0.1:2"
    )
    tasks = {name: {"source": f"{name}.jsonl"} for name in names}
    return load_recipe(write_recipe(folder, merged(tables, {"tasks": tasks} if tasks else {})))


def test_the_one_that_is_named_is_all_there_is(tmp_path: Path) -> None:
    own = one_task(recipe(tmp_path, "sums", "finds"), "finds", "x")
    assert own.shared.task.source == "finds.jsonl"
    assert not own.shared.tasks


def test_a_recipe_with_one_task_needs_no_name(tmp_path: Path) -> None:
    plain = recipe(tmp_path)
    assert one_task(plain, "", "x").shared == plain.shared


@pytest.mark.parametrize(
    ("names", "asked", "words"),
    [
        (("sums", "finds"), "", "`x` works on one task: set --task to one of sums, finds"),
        (("sums", "finds"), "sql", "--task sql: the recipe's tasks are sums, finds"),
        ((), "sums", r"--task sums: the recipe has only \[task\]"),
    ],
)
def test_a_name_that_is_none_is_refused(
    tmp_path: Path, names: tuple[str, ...], asked: str, words: str
) -> None:
    with pytest.raises(StartupError, match=words):
        one_task(recipe(tmp_path, *names), asked, "`x`")


def test_suites_of_other_tasks_are_left_out() -> None:
    suites = [
        {"name": name, "task": task, "source": "x.jsonl", "n": 1}
        for name, task in (("a", "sums"), ("b", "finds"), ("c", "sums"))
    ]
    table = EngineTable.model_validate({"evaluation": {"suites": suites}})
    assert [one.name for one in suites_of_task(table, "sums").evaluation.suites] == ["a", "c"]
    assert suites_of_task(table, "").evaluation.suites == ()
