"""Recipes of the mathematics task: table 14's values, one field for the marks, DAPO by a preset."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from console.config import ConsoleTable
from engine.config import EngineTable
from engine.offline.check.remarks import remarks
from tasks.sets import SETS
from tests.unit.verltool.math.conftest import FOLDER
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.tools.python import PythonOptions, PythonTool
from toolwright.imports import load_object
from toolwright.recipe import Recipe, check_all, load_recipe

ROOT = FOLDER.parents[2]
FILES = ("recipe", "chat")


def of(file: str, *overrides: str) -> Recipe:
    return load_recipe(FOLDER / f"{file}.toml", overrides)


def tool_of(recipe: Recipe) -> PythonTool:
    """The tool as `toolsvc serve` makes it of the recipe's words."""
    word, *rest = recipe.shared.tools["python"].serve
    assert word == "python"
    given = [one.removeprefix("python.").split("=", 1) for one in rest if "python." in one]
    return PythonTool(PythonOptions.model_validate(dict(given)), SandboxConfig())


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(("style", "stop"), [("fenced", "```output"), ("tags", "</python>")])
def test_one_field_says_how_programs_are_marked(file: str, style: str, stop: str) -> None:
    recipe = of(file, f"task.protocol_options.style='{style}'")
    task, tool = recipe.shared.task, tool_of(recipe)
    stops = tool.stop_strings or (tool.format.close,)  # type: ignore[union-attr]
    assert stops == (stop,)
    protocol: Any = load_object(task.protocol, recipe.folder)(**task.protocol_options)
    marks = {"fenced": "\n```\n", "tags": "\n</result>\n"}
    assert protocol._observation.endswith(marks[style])
    load_object(task.reward, recipe.folder)(**task.reward_options)


def test_both_recipes_train_in_the_papers_reading() -> None:
    for file in FILES:
        assert of(file).shared.task.reward_options == {
            "tool_penalty": -0.25,
            "tool_penalty_condition": "tool_used",
        }
        assert of(file).shared.task.limits.turns == 1


def test_evaluation_is_table_14s() -> None:
    recipe = of("chat")
    limits = recipe.shared.task.limits
    assert (limits.action, limits.observation, limits.response) == (2048, 512, 3072)
    assert limits.model - limits.response == 1024, "the prompt's"
    validation, *suites = recipe.table("engine", EngineTable).evaluation.suites
    assert (validation.name, validation.temperature) == ("heldout-greedy", 0.0)
    assert validation.limits is None, "as in training"
    assert [(suite.name, suite.n) for suite in suites] == [
        ("MATH500", 500),
        ("AIME24", 30),
        ("AIME25", 30),
    ]
    for suite in suites:
        assert (suite.temperature, suite.top_p) == (0.6, 0.95)
        assert suite.limits is not None
        assert suite.limits.model_dump(exclude_unset=True) == {"turns": 4}


def test_dapo_is_another_preset(tmp_path: Path) -> None:
    copied = shutil.copytree(FOLDER, tmp_path / "math", ignore=shutil.ignore_patterns("run*"))
    file = copied / "chat.toml"
    text = file.read_text(encoding="utf-8")
    assert text.count('"presets/vt_math.toml"') == 1
    file.write_text(
        text.replace('"presets/vt_math.toml"', '"presets/vt_math_dapo.toml"'), encoding="utf-8"
    )
    recipe, plain = load_recipe(file), of("chat")
    check_all(recipe)
    assert "warning" not in "\n".join(remarks(recipe))
    assert recipe.raw["learner"]["loss"]["aggregation"] == "token-mean"
    assert recipe.raw["learner"]["loss"]["clip_high"] == 0.28
    assert recipe.raw["task"]["dynamic_sampling"]["max_gen_batches"] == 10
    assert plain.raw["learner"]["loss"]["clip_high"] == 0.2
    assert "dynamic_sampling" not in plain.raw["task"]
    assert recipe.shared.run.group_size == plain.shared.run.group_size == 16


def test_ablations_change_the_reward_alone() -> None:
    ablations = of("recipe").table("console", ConsoleTable).ablations
    assert {one.name for one in ablations} == {"accuracy-only", "match"}
    for one in ablations:
        recipe = of("recipe", *one.set)
        check_all(recipe)
        task = recipe.shared.task
        load_object(task.reward, recipe.folder)(**task.reward_options)
        assert task.reward_options != of("recipe").shared.task.reward_options
        same = {**recipe.raw["task"], "reward_options": None}
        assert same == {**of("recipe").raw["task"], "reward_options": None}


def test_the_readme_names_sets_that_can_be_read() -> None:
    named = re.findall(r"tasks convert (\w+)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert set(named) == {"deepmath", "math500", "aime24", "aime25"}
    assert set(named) <= set(SETS)
    held_out = SETS["deepmath"].held_out
    assert held_out is not None
    assert (held_out.rows, held_out.seed) == (500, 42)


def test_the_readmes_numbers_are_the_papers() -> None:
    tables = json.loads((ROOT / "bench/reference/verltool.json").read_text(encoding="utf-8"))[
        "tables"
    ]
    (table,) = [one for one in tables if one["id"] == "T4"]
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for row in table["rows"]:
        if row["system"].startswith(("VT-Math", "ToRL")):
            cells = [*row["cells"].values(), row["averages"]["average"]]
            line = " | ".join([row["system"], *(f"{cell:.1f}" for cell in cells)])
            assert f"| {line} |" in readme
