"""The visual task's recipes: the paper's values, and options that fit the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.config import ConsoleTable
from engine.config import EngineTable
from engine.offline.check.remarks import remarks
from tests.unit.vt_visual.conftest import FOLDER
from toolwright.imports import load_object
from toolwright.recipe import Recipe, check_all, load_recipe

FILES = ("recipe", "chat")


def of(file: str, *overrides: str) -> Recipe:
    return load_recipe(FOLDER / f"{file}.toml", overrides)


def console(recipe: Recipe) -> ConsoleTable:
    return recipe.table("console", ConsoleTable)


EVERY = [
    (file, name, rung)
    for file in FILES
    for name, rung in (("", ()), *((one.name, one.set) for one in console(of(file)).ablations))
]


@pytest.mark.parametrize(("file", "name", "rung"), EVERY)
def test_every_rung_is_in_order(file: str, name: str, rung: tuple[str, ...]) -> None:
    recipe = of(file, *rung)
    check_all(recipe)
    if not rung:
        assert "warning" not in "\n".join(remarks(recipe))
    task = recipe.shared.task
    load_object(task.protocol, recipe.folder)(**task.protocol_options)
    load_object(task.reward, recipe.folder)(**task.reward_options)
    hook: Any = load_object(task.group_hook, recipe.folder)(**task.group_hook_options)
    looking = hook
    weights = (looking.rate, looking.free, looking.curiosity, looking.cost)
    assert weights == ((0.3, 1, 0.0, 0.0) if name == "accuracy-only" else (0.3, 1, 0.5, 0.05))


def test_the_papers_table_is_that_of_chat_toml() -> None:
    recipe = of("chat")
    shared = recipe.shared
    assert (shared.run.groups_per_step, shared.run.group_size) == (128, 8)
    limits = shared.task.limits
    assert (limits.turns, limits.action, limits.observation) == (3, 2048, 8192)
    assert (shared.sampler.temperature, shared.sampler.top_p) == (1.0, 1.0)
    (suite,) = recipe.table("engine", EngineTable).evaluation.suites
    assert (suite.n, suite.temperature, suite.top_p) == (191, 0.0, 1.0)
    asked = suite.limits
    assert (asked.turns, asked.action, asked.observation, asked.response) == (5, 4096, 8192, 16384)


def test_sampler_and_learner_make_pixels_the_same_way() -> None:
    for file in FILES:
        flags = console(of(file)).sampler.flags
        assert tuple(flags) == ("--image-processor-backend", "pil")


def test_the_demonstration_stands_alone() -> None:
    """What is made lies in the run's folder, by programs of the folder."""
    recipe = of("recipe")
    prepared = console(recipe).prepare
    assert {Path(one.makes).parts[0] for one in prepared} == {"run"}
    for one in prepared:
        program, _, module, script, *_ = one.run
        assert (program, module) == ("python", "toolwright.script")
        assert (FOLDER / script).is_file()
    made = {str(one.makes) for one in prepared}
    assert str(recipe.shared.policy.model) in made
    suites = recipe.table("engine", EngineTable).evaluation.suites
    for source in (recipe.shared.task.source, *(suite.source for suite in suites)):
        assert source in made


def test_what_the_report_compares_is_asked_both_ways() -> None:
    recipe = of("recipe")
    suites = {one.name: one for one in recipe.table("engine", EngineTable).evaluation.suites}
    for shown in console(recipe).report.suites:
        assert suites[f"{shown.name}-sampled"].temperature == 1.0
        assert suites[f"{shown.name}-greedy"].temperature == 0.0
    withheld = {name for name, suite in suites.items() if suite.withhold_observations}
    assert withheld == {"unseen-sampled", "unseen-greedy"}
