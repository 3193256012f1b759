"""The SQL task's two recipes: in order, alone in their folder, saying nothing twice unlike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.config import ConsoleTable
from engine.config import EngineTable, RenderTable
from engine.offline.check.remarks import remarks
from learner.config.tables import SftTable
from tests.unit.verltool_sql.conftest import FOLDER
from toolwright.imports import load_object
from toolwright.recipe import Recipe, check_all, load_recipe

FILES = ("recipe.toml", "chat.toml")


def made(recipe: Recipe) -> tuple[Any, Any]:
    """Protocol and reward, as the engine makes them."""
    task = recipe.shared.task
    protocol = load_object(task.protocol, recipe.folder)(**task.protocol_options)
    return protocol, load_object(task.reward, recipe.folder)(**task.reward_options)


@pytest.mark.parametrize("file", FILES)
def test_a_recipe_is_in_order(file: str) -> None:
    recipe = load_recipe(FOLDER / file)
    check_all(recipe)
    assert "warning" not in "\n".join(remarks(recipe))
    made(recipe)
    task = recipe.shared.task
    assert task.limits.turns == task.protocol_options["queries"] + 1, "the solution is a call too"
    assert "sql.solution_json=true" in recipe.shared.tools["sql"].serve
    assert recipe.shared.tools["sql"].run_limit_s == 5.0
    assert recipe.shared.run.engine == "127.0.0.1:0"
    assert recipe.shared.sampler.endpoints == ("http://127.0.0.1:0",)


def test_dapo_is_another_preset(tmp_path: Path) -> None:
    text = (FOLDER / "chat.toml").read_text(encoding="utf-8")
    (tmp_path / "chat.toml").write_text(
        text.replace("vt_sql.toml", "vt_sql_dapo.toml", 1), encoding="utf-8"
    )
    recipe = load_recipe(tmp_path / "chat.toml")
    check_all(recipe)
    said = "\n".join(remarks(recipe))
    assert "ratio 0.8 to 1.28" in said
    assert "token-mean" in said
    assert recipe.shared.task.dynamic_sampling is not None


def test_the_folder_stands_alone() -> None:
    recipe = load_recipe(FOLDER / "recipe.toml")
    shared, console = recipe.shared, recipe.table("console", ConsoleTable)
    render, sft = recipe.table("render", RenderTable), recipe.table("sft", SftTable)
    suites = recipe.table("engine", EngineTable).evaluation.suites
    for source in (shared.task.source, shared.task.reward, *(one.source for one in suites)):
        assert (FOLDER / source.partition(":")[0]).is_file(), source
    makes = [str(one.makes) for one in console.prepare]
    assert all((FOLDER / one.run[1]).is_file() for one in console.prepare)
    assert all(path.startswith("run/") for path in makes)
    assert {str(render.conversations), str(render.model), str(sft.model)} <= set(makes)
    assert shared.policy.model == sft.output and sft.data == render.output
    named = {one.name: one.temperature for one in suites}
    for one in console.report.suites:
        assert (named[f"{one.name}-sampled"], named[f"{one.name}-greedy"]) == (1.0, 0.0)


def test_demonstrations_and_recipe_count_the_same_queries(part: Any) -> None:
    options = load_recipe(FOLDER / "recipe.toml").shared.task.protocol_options
    assert part("world/demonstrations.QUERIES") == options["queries"]


def test_the_readme_is_a_page_and_its_first_paragraph_a_line() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    assert readme[0].startswith("# ")
    assert readme[2]
    assert len(readme) < 120
