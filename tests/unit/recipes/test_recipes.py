"""The recipes that ship: whole folders that stand alone, and ask what their reports compare."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.config import ConsoleTable
from engine.config import EngineTable, RenderTable
from engine.offline.check.remarks import remarks
from learner.config.tables import SftTable
from toolwright.process.packaged import packaged
from toolwright.recipe import Recipe, check_all, load_recipe

ROOT = packaged("recipes")
FILES = sorted(file for folder in ("*", "*/*") for file in ROOT.glob(f"{folder}/*.toml"))
RECIPES = [file for file in FILES if "presets" not in file.parts]
WHOLE = [file for file in RECIPES if {"render", "sft"} <= load_recipe(file).raw.keys()]
"""Those that make their policy themselves; others are given one, or what it learns from."""


def over(files: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("file", files, ids=lambda f: f"{f.relative_to(ROOT)}"[:-5])


def inside(recipe: Recipe, path: Path | str) -> bool:
    return recipe.resolve(path).is_relative_to(recipe.folder.resolve())


@over(RECIPES)
def test_a_recipe_has_no_doubts(file: Path) -> None:
    recipe = load_recipe(file)
    check_all(recipe)
    assert "warning" not in "\n".join(remarks(recipe))


@over(WHOLE)
def test_what_the_report_compares_is_asked(file: Path) -> None:
    recipe = load_recipe(file)
    suites = {s.name: s for s in recipe.table("engine", EngineTable).evaluation.suites}
    shown = recipe.table("console", ConsoleTable).report.suites
    assert shown
    for one in shown:
        for how, temperature in (("sampled", 1.0), ("greedy", 0.0)):
            asked = suites[f"{one.name}-{how}"]
            assert asked.temperature == temperature
            assert asked.when != "last", "there would be no before"


@over(WHOLE)
def test_a_copied_folder_stands_alone(file: Path) -> None:
    """Everything that a recipe names lies in its folder or is made there by a command it names."""
    recipe = load_recipe(file)
    shared, console = recipe.shared, recipe.table("console", ConsoleTable)
    render, sft = recipe.table("render", RenderTable), recipe.table("sft", SftTable)
    suites = recipe.table("engine", EngineTable).evaluation.suites
    tasks = shared.each_task.values()
    sources = [one for task in tasks for one in (task.source, task.reward)]
    sources += [suite.source for suite in suites]
    for source in sources:
        assert (recipe.folder / source.partition(":")[0]).is_file(), source
    made = [prepared.makes for prepared in console.prepare]
    for prepared in console.prepare:
        program, *words = prepared.run
        assert program in ("python", "toolsvc", "learner")
        if program == "python":
            assert words[0] == "-m"
            assert words[1] in ("toolwright.script", "toolwright.python_environment")
            assert (recipe.folder / words[2]).is_file()
    for output in (shared.run.folder, sft.output, render.output, *made):
        assert inside(recipe, output)
    assert shared.policy.model == sft.output
    assert sft.data == render.output
    needed = (sft.model, render.model, *render.files.values())
    for path in needed:
        assert path in made or (recipe.folder / str(path)).exists(), path


@over(WHOLE)
def test_what_a_run_makes_is_below_its_folder_or_a_model(file: Path) -> None:
    """`--folder` then moves all of a run; a model or an environment that is fetched is there once
    for all runs."""
    recipe = load_recipe(file)
    made = [prepared.makes for prepared in recipe.table("console", ConsoleTable).prepare]
    for path in (recipe.table("sft", SftTable).output, *made):
        parts = Path(str(path)).parts
        assert parts[0] in (recipe.shared.run.folder.name, "models", ".venv")


@over(RECIPES)
def test_what_a_recipe_names_is_there(file: Path) -> None:
    recipe = load_recipe(file)
    tasks, suites = recipe.shared.each_task, recipe.table("engine", EngineTable).evaluation.suites
    named = [
        path
        for task in tasks.values()
        for path in (task.source, task.reward, task.protocol, task.group_hook)
    ]
    for path in (*named, *(suite.source for suite in suites)):
        if path.startswith("./"):
            assert (recipe.folder / path.partition(":")[0]).is_file(), path


@over(RECIPES)
def test_it_says_what_it_is(file: Path) -> None:
    readme = (file.parent / "README.md").read_text(encoding="utf-8").splitlines()
    assert readme[0].startswith("# ")
    assert readme[2], "the first paragraph is what `toolwright init` lists"


@over(RECIPES)
def test_every_port_is_one_that_toolwright_run_chooses(file: Path) -> None:
    recipe = load_recipe(file)
    assert recipe.shared.run.engine == "127.0.0.1:0"
    assert recipe.shared.sampler.endpoints == ("http://127.0.0.1:0",)
    assert all(tool.serve for tool in recipe.shared.tools.values())
