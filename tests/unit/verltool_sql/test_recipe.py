"""The SQL task's two recipes: in order, alone in their folder, saying nothing twice unlike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.offline.check.remarks import remarks
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


def test_demonstrations_and_recipe_count_the_same_queries(part: Any) -> None:
    options = load_recipe(FOLDER / "recipe.toml").shared.task.protocol_options
    assert part("world/demonstrations.QUERIES") == options["queries"]


def test_the_readme_is_a_page_and_its_first_paragraph_a_line() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    assert readme[0].startswith("# ")
    assert readme[2]
    assert len(readme) < 120
