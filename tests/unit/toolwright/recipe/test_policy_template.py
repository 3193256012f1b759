"""`policy.template`: variables of the chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import merged, recipe_tables, to_toml
from toolwright.recipe import RecipeError, load_recipe

pytestmark = pytest.mark.quick


def template(folder: Path, value: dict[str, Any], *overrides: str) -> dict[str, Any]:
    tables = recipe_tables(
        policy=Path("policy"), sampler="http://127.0.0.1:1", tools={"python": "a:1"}, engine="a:2"
    )
    file = folder / "recipe.toml"
    file.write_text(to_toml(merged(tables, {"policy": {"template": value}})), encoding="utf-8")
    return dict(load_recipe(file, overrides).shared.policy.template)


def test_values_are_json_s(tmp_path: Path) -> None:
    given = {"enable_thinking": False, "budget": 3, "names": ["a"], "table": {"b": 1.5}}
    assert template(tmp_path, given) == given
    assert template(tmp_path, {}) == {}


def test_the_command_line_sets_one(tmp_path: Path) -> None:
    found = template(tmp_path, {"a": 1}, "policy.template.enable_thinking=false")
    assert found == {"a": 1, "enable_thinking": False}


@pytest.mark.parametrize("name", ["messages", "add_generation_prompt", "a-b"])
def test_names_that_a_recipe_cannot_set(tmp_path: Path, name: str) -> None:
    with pytest.raises(RecipeError, match=f"{name}.*is not a variable that a recipe can set"):
        template(tmp_path, {name: 1})
