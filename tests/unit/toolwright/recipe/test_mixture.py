"""Several tasks in one recipe: what each takes from [task], and how many groups are whose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import merged, to_toml
from toolwright.model.fingerprint import terms_of
from toolwright.recipe import Recipe, RecipeError, load_recipe, read_resolved
from toolwright.recipe.models.table import Table
from toolwright.recipe.models.tasks import allotment

TABLES: dict[str, Any] = {
    "run": {"name": "r", "folder": "out", "steps": 2, "groups_per_step": 4, "group_size": 4},
    "policy": {"model": "weights"},
    "task": {
        "reward": "./common.py:score",
        "protocol_options": {"system": "Think."},
        "limits": {"turns": 2},
    },
    "tasks": {
        "math": {"source": "math.jsonl", "tools": ["python"], "limits": {"action": 99}},
        "finds": {
            "source": "finds.jsonl",
            "share": 3,
            "weight": 0.5,
            "protocol": "./own.py:Own",
            "tools": ["index", "python"],
        },
    },
    "sampler": {"endpoints": ["http://127.0.0.1:1"]},
    "tools": {
        "index": {"service": "127.0.0.1:3"},
        "python": {"service": "127.0.0.1:2"},
        "idle": {"service": "127.0.0.1:4"},
    },
}


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def load(*overrides: str, **changes: Any) -> Recipe:
        file = tmp_path / "recipe.toml"
        file.write_text(to_toml(merged(TABLES, changes)), encoding="utf-8")
        return load_recipe(file, overrides)

    return load


@pytest.mark.parametrize(
    ("groups", "shares", "wanted"),
    [
        (8, [0.5, 0.5], [4, 4]),
        (8, [0.5, 0.3, 0.2], [4, 2, 2]),
        (5, [0.3, 0.3, 0.4], [2, 1, 2]),  # the remainders are equal: the earlier one
        (3, [1, 1], [2, 1]),
        (7, [1e-9], [7]),
        (10, [1e9, 1e9, 1e9], [4, 3, 3]),
        (4, [0.9, 0.1], [4, 0]),
        (1, [1, 2, 3], [0, 0, 1]),
    ],
)
def test_groups_are_shared_out_by_largest_remainders(
    groups: int, shares: list[float], wanted: list[int]
) -> None:
    assert allotment(groups, shares) == wanted


@pytest.mark.parametrize("groups", [1, 2, 7, 20, 39])
def test_all_groups_are_shared_out(groups: int) -> None:
    shares = [0.1, 0.7, 0.15, 0.05]
    given = allotment(groups, shares)
    assert sum(given) == groups
    assert all(abs(own - groups * share) < 1 for own, share in zip(given, shares, strict=True))


def test_a_task_says_what_it_has_of_its_own(load: Any) -> None:
    shared = load().shared
    math, finds = shared.tasks["math"], shared.tasks["finds"]
    assert (math.source, math.reward, math.share, math.weight) == (
        "math.jsonl", "./common.py:score", 1.0, 1.0
    )  # fmt: skip
    assert (math.limits.turns, math.limits.action) == (2, 99)
    assert math.protocol_options == {"system": "Think."}
    assert finds.protocol_options == {}, "those of [task] are for another protocol"
    assert shared.allotment == {"math": 1, "finds": 3}
    assert shared.used_tools == ("python", "index")


def test_a_recipe_with_one_task_is_itself(load: Any) -> None:
    read = load(tasks={"math": None, "finds": None}, task={"source": "x.jsonl"})
    assert read.of_task("").shared == read.shared
    assert read.shared.each_task == {"": read.shared.task}
    assert not any(name.startswith("tasks") for name in terms_of(read.shared))


def test_engine_and_learner_compare_every_task(load: Any) -> None:
    terms = terms_of(load().shared)
    assert terms["tasks.finds.weight"] == 0.5
    assert terms["tasks.math.limits.turns"] == 2
    assert "tasks.math.reward_threads" not in terms


def test_the_command_line_reaches_a_task(load: Any) -> None:
    assert load("tasks.math.share=3").shared.allotment == {"math": 2, "finds": 2}
    assert load("task.limits.turns=7").shared.tasks["math"].limits.turns == 7


def test_the_resolved_recipe_is_read_back_the_same(load: Any) -> None:
    read = load()
    read.write_resolved("engine", Table())
    assert read_resolved(read.run_folder / "engine.resolved.json").shared == read.shared


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"math": {"share": 0}}, r"tasks\.math\.share: .*greater than 0, not 0"),
        ({"math": {"share": 0.01}}, r"tasks\.math\.share = 0\.01 is not one whole group of"),
        ({"math": {"weight": 0}, "finds": {"weight": 0}}, "every task has weight = 0"),
        ({"math": {"shares": 1}}, r"tasks\.math\.shares: unknown key \(did you mean 'share'\?\)"),
        ({"math": {"tools": ["pyton"]}}, r"tasks\.math\.tools names \['pyton'\]"),
        ({"9": {"source": "x.jsonl"}}, r"tasks\.9: a task's name is part of metrics'"),
        (
            {"math": {"dynamic_sampling": {"max_gen_batches": 3}}},
            r"tasks\.math\.dynamic_sampling: a batch is filled over all tasks",
        ),
        ({"math": {"branching": {"init": 4}}}, r"\(tasks\.math\.branching\.init\)"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_mend(
    load: Any, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(RecipeError, match=words):
        load(tasks=changes)


@pytest.mark.parametrize("value", ["inf", "nan", "[1]"])
@pytest.mark.parametrize("key", ["share", "weight"])
def test_what_is_no_finite_number_is_refused(load: Any, key: str, value: str) -> None:
    with pytest.raises(RecipeError, match=rf"tasks\.math\.{key}: "):
        load(f"tasks.math.{key}={value}")
