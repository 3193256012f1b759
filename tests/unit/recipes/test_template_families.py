"""`engine check` of every shipped recipe with the chat template of each family."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.config import EngineTable
from engine.core.build import build_protocol, task_recipes
from engine.core.protocols.chat import Chat
from engine.errors import StartupError
from engine.offline.check.command import check
from tests.support.families import FAMILIES, write_family
from tests.unit.recipes.test_recipes import RECIPES, over
from toolwright.recipe import Recipe, RecipeError, load_recipe

pytestmark = pytest.mark.slow

CLASSES = {
    "tool": {name: family.kind for name, family in FAMILIES.items()},
    "user": {
        **dict.fromkeys(FAMILIES, "append-only"),
        **dict.fromkeys(("qwen3", "glm_4_5", "deepseek_r1"), "strips thinking"),
    },
    "system": {
        **dict.fromkeys(FAMILIES, "append-only"),
        **dict.fromkeys(("mistral", "deepseek_v3", "deepseek_r1"), "not splittable"),
    },
}
"""By the role of observations. DeepSeek moves system messages to the front, Mistral refuses
them."""
NO_THINKING = {"qwen3": "strips thinking", "glm_4_5": "append-only"}
"""Without thinking Qwen3's prompts end with an empty thought, which it drops from earlier turns."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    root = tmp_path_factory.mktemp("families")
    return {name: write_family(root / name, name) for name in FAMILIES}


def roles_of(recipe: Recipe) -> set[str]:
    protocols = [build_protocol(own) for own in task_recipes(recipe).values()]
    return {role for one in protocols if isinstance(one, Chat) for role in one.roles}


def class_of(recipe: Recipe, name: str, role: str) -> str:
    silent = recipe.shared.policy.template.get("enable_thinking") is False
    return NO_THINKING[name] if silent and name in NO_THINKING else CLASSES[role][name]


@over(RECIPES)
def test_the_template_s_class_and_names_are_said(
    file: Path, folders: Mapping[str, Path], tmp_path: Path
) -> None:
    for name, folder in folders.items():
        overrides = [f"policy.model={folder}", f"run.folder={tmp_path / name}"]
        recipe = load_recipe(file, overrides)
        used = roles_of(recipe)
        lines = []
        try:
            for line in check(recipe, recipe.table("engine", EngineTable), connect=False):
                lines.append(line)  # noqa: PERF402 - those before an error count
        except (StartupError, RecipeError) as error:
            refused = [one for one in used if CLASSES[one][name] == "not splittable"]
            missing = "no file" in str(error) or "no folder" in str(error)
            assert refused or missing, error
        for role in used or {"tool"}:
            kind = class_of(recipe, name, role)
            broken = kind == "not splittable" and role in used
            start = f"{'warning: ' * broken}chat template, role {role!r}: {kind}"
            assert [line for line in lines if line.startswith(start)], (name, role, lines)
        unset = FAMILIES[name].reads - recipe.shared.policy.template.keys()
        warned = [line for line in lines if "which policy.template does not set" in line]
        assert len(warned) == bool(unset)
        assert all(one in warned[0] for one in unset)
