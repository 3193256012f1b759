"""Which questions of which task are asked: the same for the same seed, in order, none twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import EngineTable, Evaluation, Suite
from engine.core.build import one_task
from engine.errors import StartupError
from engine.offline.evaluate.command import evaluate, suites_of_task
from engine.offline.evaluate.options import EvaluationOptions
from engine.offline.evaluate.questions import (
    Subset,
    named_suites,
    select_questions,
    subset_positions,
)
from engine.serving.evaluation.suite_tasks import SuiteTasks
from tests.support.recipes import merged, recipe_tables, write_recipe
from toolwright.recipe import Recipe, load_recipe
from toolwright.types import WeightVersion


def suite(name: str = "nq", n: int = 10, **fields: Any) -> Suite:
    return Suite.model_validate({"name": name, "source": f"{name}.jsonl", "n": n, **fields})


@given(st.integers(1, 400), st.integers(1, 500), st.integers())
def test_a_subset_is_as_large_as_can_be_and_in_order(n: int, size: int, seed: int) -> None:
    found = list(subset_positions(n, Subset(n=size, seed=seed)))
    assert len(found) == min(n, size)
    assert found == sorted(set(found))
    assert set(found) <= set(range(n))


def test_a_subset_is_the_same_every_time_and_another_for_another_seed() -> None:
    seven = Subset(n=5, seed=7)
    assert subset_positions(3610, seven) == [714, 1779, 1911, 1919, 3539]
    assert subset_positions(3610, seven) != subset_positions(3610, Subset(n=5, seed=8))


def test_samples_of_a_question_stand_side_by_side() -> None:
    (found,) = select_questions([suite(n=3)], subset=None, samples=2, temperature=0.6)
    assert (found.suite.n, found.questions, found.suite.temperature) == (6, 3, 0.6)
    assert list(found.positions) == [0, 0, 1, 1, 2, 2]


def test_as_many_questions_of_a_longer_suite_are_told_apart() -> None:
    def drawn(n: int, seed: int = 0) -> str:
        subset = Subset(n=5, seed=seed)
        return select_questions([suite(n=n)], subset=subset, samples=1, temperature=None)[
            0
        ].positions_digest

    assert drawn(10) == drawn(10)
    assert len({drawn(10), drawn(20), drawn(10, seed=1)}) == 3


async def test_only_chosen_rows_are_drawn_and_each_as_often_as_it_is_asked(tmp_path: Path) -> None:
    (tmp_path / "nq.jsonl").write_text(
        "".join(f'{{"id": "q{n}", "prompt": "{n}?"}}\n' for n in range(9)), encoding="utf-8"
    )
    (one,) = select_questions([suite(n=9)], subset=Subset(n=3, seed=1), samples=2, temperature=None)
    tasks = SuiteTasks(one.suite, tmp_path, max_bad_rows=0, positions=one.positions)
    await tasks.open()
    version = WeightVersion(lineage="run", step=0)
    drawn = [
        (index, d.task.id)  # type: ignore[union-attr]
        async for index, d in tasks.walk(lambda index: index != 1, version=version)
    ]
    tasks.close()
    chosen = subset_positions(9, Subset(n=3, seed=1))
    expected = [(i, f"q{chosen[i // 2]}") for i in range(6) if i != 1]
    assert drawn == expected


def recipe(folder: Path, policy: Path, source: str) -> Recipe:
    tables = recipe_tables(policy=policy, sampler="http://127.0.0.1:1", tools={}, engine="")
    tables["run"]["engine"] = "127.0.0.1:1"
    tables["task"]["source"] = source
    return load_recipe(write_recipe(folder, tables))


async def test_without_suites_it_is_the_tasks_own_file(tmp_path: Path, policy_folder: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1?"}\n{"prompt": "2?"}\n\n', encoding="utf-8")
    its = recipe(tmp_path, policy_folder, "rows.jsonl")
    (found,) = await named_suites(its, Evaluation(), (), max_bad_rows=0)
    assert (found.name, found.source, found.n) == ("task", "rows.jsonl", 2)


async def test_a_function_without_an_end_and_an_unknown_name_are_refused(
    tmp_path: Path, policy_folder: Path
) -> None:
    its = recipe(tmp_path, policy_folder, "task.py:training")
    with pytest.raises(StartupError, match="is a function without end: add a suite"):
        await named_suites(its, Evaluation(), (), max_bad_rows=0)
    table = Evaluation(suites=(suite("a"), suite("b", when="ends")))
    with pytest.raises(StartupError, match="--suite c: the recipe's suites are a, b"):
        await named_suites(its, table, ["c"], max_bad_rows=0)
    found = await named_suites(its, table, ["b"], max_bad_rows=0)
    assert [one.name for one in found] == ["b"]


PROMPTING = Path(__file__).resolve().parents[4] / "recipes/prompting"


async def test_a_recipe_of_toolwright_run_is_told_how_to_name_its_servers(tmp_path: Path) -> None:
    recipe = load_recipe(PROMPTING / "direct.toml", [f"run.folder='{tmp_path}/run'"])
    with pytest.raises(StartupError, match="--endpoint http://HOST:PORT"):
        await evaluate(recipe, EngineTable(), EvaluationOptions(), print)
    assert not (tmp_path / "run").exists()


def of_tasks(folder: Path, *names: str) -> Recipe:
    tables: dict[str, Any] = recipe_tables(
        policy=Path("p"), sampler="http://127.0.0.1:1", tools={}, engine="127.0.0.1:2"
    )
    tasks = {name: {"source": f"{name}.jsonl"} for name in names}
    return load_recipe(write_recipe(folder, merged(tables, {"tasks": tasks} if tasks else {})))


def test_the_one_that_is_named_is_all_there_is(tmp_path: Path) -> None:
    own = one_task(of_tasks(tmp_path, "sums", "finds"), "finds", "x")
    assert own.shared.task.source == "finds.jsonl"
    assert not own.shared.tasks


def test_a_recipe_with_one_task_needs_no_name(tmp_path: Path) -> None:
    plain = of_tasks(tmp_path)
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
        one_task(of_tasks(tmp_path, *names), asked, "`x`")


def test_suites_of_other_tasks_are_left_out() -> None:
    suites = [
        {"name": name, "task": task, "source": "x.jsonl", "n": 1}
        for name, task in (("a", "sums"), ("b", "finds"), ("c", "sums"))
    ]
    table = EngineTable.model_validate({"evaluation": {"suites": suites}})
    assert [one.name for one in suites_of_task(table, "sums").evaluation.suites] == ["a", "c"]
    assert suites_of_task(table, "").evaluation.suites == ()
