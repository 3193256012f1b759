"""VerlTool's recipes at the paper's size: table 14's numbers, rungs that fit, pages that differ in
nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.config import ConsoleTable
from engine.config import EngineTable, Suite
from engine.offline.check.budgets import budget_lines
from toolwright.process.packaged import packaged
from toolwright.recipe import Limits, Recipe, load_recipe

FOLDER = packaged("recipes") / "verltool"


def of(name: str, *overrides: str) -> Recipe:
    return load_recipe(FOLDER / f"{name}.toml", overrides)


def suites(name: str) -> dict[str, Suite]:
    found = of(name).table("engine", EngineTable).evaluation.suites
    return {suite.name: suite for suite in found}


def rungs(name: str) -> dict[str, tuple[str, ...]]:
    return {one.name: one.set for one in of(name).table("console", ConsoleTable).ablations}


def columns(limits: Limits) -> dict[str, Any]:
    """Rows of table 14 that limit a trajectory; turns apart, since a solution of SQL is a call."""
    return limits.model_dump(include={"action", "observation", "response", "model"})


@pytest.mark.parametrize("task", ["math", "search", "sql", "visual", "deepsearch"])
def test_a_whole_recipe_trains_with_table_14s_columns(task: str, tmp_path: Path) -> None:
    (tmp_path / "bare.toml").write_text(
        f'extends = ["presets/vt_{task}.toml"]\n[run]\nname = "x"\nfolder = "r"\nsteps = 1\n'
        '[policy]\nmodel = "m"\n[task]\nsource = "s.jsonl"\nreward = "r:r"\n'
        '[sampler]\nendpoints = ["http://127.0.0.1:1"]\n',
        encoding="utf-8",
    )
    whole, bare = of(f"{task}/paper").shared, load_recipe(tmp_path / "bare.toml").shared
    assert columns(whole.task.limits) == columns(bare.task.limits)
    assert (whole.run.batch, whole.run.group_size) == (bare.run.batch, bare.run.group_size)
    assert whole.sampler.temperature == bare.sampler.temperature
    assert whole.task.source == "data/train.jsonl"


def test_every_rung_of_table_17_fits_one_budget() -> None:
    """So that the rungs differ in the observation, and no response is cut by another limit."""
    sets = rungs("search/sweeps")
    shown = {}
    for name in ("", *sets):
        limits = of("search/sweeps", *sets.get(name, ())).shared.task.limits
        assert list(budget_lines(limits, 4096, "task.limits")) == []
        shown[name] = limits.observation
    assert shown == {
        "": 1024,
        "observation-512": 512,
        "observation-2048": 2048,
        "observation-4096": 4096,
        "void-masked": 1024,
    }
    printed = of("search/paper", "task.limits.observation=4096").shared.task.limits
    (line,) = budget_lines(printed, 0, "task.limits")
    assert line.startswith("warning: task.limits.turns x observation = 2 x 4096 = 8192 tokens")


def test_pages_are_all_that_differs_in_their_evaluation() -> None:
    snippets, pages = suites("deepsearch/paper"), suites("deepsearch/evaluate_pages")
    assert list(snippets) == ["GAIA", "HLE"]
    for name, suite in pages.items():
        assert suite.metadata == {"web_search_pages": 3}
        assert suite.model_copy(update={"metadata": {}}) == snippets[name]


@pytest.mark.parametrize(("pair", "other"), [("math_sql", "sql"), ("math_visual", "visual")])
def test_two_tasks_keep_the_columns_of_each(pair: str, other: str) -> None:
    shared = of(f"together/{pair}").shared
    groups = shared.run.groups_per_step
    assert shared.allotment == {"math": groups // 2, other: groups // 2}
    for name in ("math", other):
        own, alone = shared.tasks[name], of(f"{name}/paper").shared.task
        assert own.limits == alone.limits
        for mine, its in ((own.reward_options, alone.reward_options),
                          (own.protocol_options, alone.protocol_options),
                          (own.group_hook_options, alone.group_hook_options)):  # fmt: skip
            assert mine == its
    alone_rungs = {f"{name}-alone" for name in ("math", other)}
    assert set(rungs(f"together/{pair}")) == alone_rungs
    for name, changes in rungs(f"together/{pair}").items():
        weights = {
            key: task.weight for key, task in of(f"together/{pair}", *changes).shared.tasks.items()
        }
        assert weights == {key: float(f"{key}-alone" == name) for key in weights}


def test_the_masks_of_figure_6() -> None:
    found = {}
    for name, changes in rungs("math/simpletir").items():
        task = of("math/simpletir", *changes).shared.task
        found[name] = (task.mask_void, task.mask_overlong, task.exclude_masked_from_baseline)
    assert found == {
        "void-masked": (True, False, None),
        "void-and-long-masked": (True, True, None),
        "void-outside": (True, False, True),
    }
    recipe = of("math/simpletir")
    assert not recipe.shared.task.mask_void
    assert list(budget_lines(recipe.shared.task.limits, 2048, "task.limits")) == []
