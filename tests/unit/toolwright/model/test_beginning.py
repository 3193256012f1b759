"""Which weights a run begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recipes import recipe_tables, write_recipe
from toolwright.model.beginning import FILE_NAME, first_policy, leave_fork
from toolwright.recipe import Recipe, RecipeError, load_recipe


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    tables = recipe_tables(
        policy=tmp_path / "model", sampler="http://127.0.0.1:1", tools={}, engine="127.0.0.1:1"
    )
    return load_recipe(write_recipe(tmp_path, tables))


def test_a_run_begins_with_the_recipes_policy(recipe: Recipe, tmp_path: Path) -> None:
    assert first_policy(recipe) == tmp_path / "model"


def test_a_forked_run_begins_with_the_other_runs_weights(recipe: Recipe, tmp_path: Path) -> None:
    leave_fork(recipe, run=tmp_path / "old", version="a.7", weights=tmp_path / "old" / "p7")
    assert first_policy(recipe) == tmp_path / "old" / "p7"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weights": 7}', "\x00"])
def test_a_file_that_says_nothing_is_refused(recipe: Recipe, text: str) -> None:
    recipe.run_folder.mkdir(parents=True, exist_ok=True)
    (recipe.run_folder / FILE_NAME).write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError, match="does not say"):
        first_policy(recipe)
