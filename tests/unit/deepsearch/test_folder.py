"""Deep search's recipes: their options fit their code, and each variant changes what it names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from console.config import ConsoleTable
from engine.config import EngineTable
from engine.offline.check.remarks import remarks
from tests.unit.deepsearch.conftest import FOLDER
from toolsvc.tools.search import SearchOptions
from toolsvc.tools.web_search.web_search_tool import SESSION_PAGES, WebSearchOptions
from toolwright.imports import load_file, load_object
from toolwright.recipe import Recipe, check_all, load_recipe
from toolwright.recipe.assignments import assign

FILES = ("recipe", "chat")
ROWS = {
    "gaia": {"task_id": "a", "Question": "Who?", "Level": 1, "Final answer": "Alda"},
    "hle": {"question": "Who?", "answer": "Alda", "category": "x"},
    "webwalker": {"question": "Who?", "answer": "Alda"},
    "xbench": {"question": "Who?", "answer": "Alda"},
}


def of(file: str, *overrides: str) -> Recipe:
    return load_recipe(FOLDER / f"{file}.toml", overrides)


def variants(file: str) -> dict[str, tuple[str, ...]]:
    return {one.name: one.set for one in of(file).table("console", ConsoleTable).ablations}


EVERY = [(file, name, rung) for file in FILES for name, rung in [("", ()), *variants(file).items()]]


@pytest.mark.parametrize(("file", "name", "rung"), EVERY, ids=lambda one: str(one)[:24])
def test_a_recipe_and_its_variants_are_in_order(
    file: str, name: str, rung: tuple[str, ...]
) -> None:
    recipe = of(file, *rung)
    check_all(recipe)
    assert "warning" not in "\n".join(remarks(recipe))
    task = recipe.shared.task
    load_object(task.protocol, recipe.folder)(**task.protocol_options)
    load_object(task.reward, recipe.folder)(**task.reward_options)
    assert recipe.shared.run.engine == "127.0.0.1:0"
    assert recipe.shared.sampler.endpoints == ("http://127.0.0.1:0",)
    assert all(tool.serve for tool in recipe.shared.tools.values())


def settings(recipe: Recipe) -> tuple[str, dict[str, object]]:
    """The tool that searches, and its options as `toolsvc serve` reads them."""
    tool, *words = recipe.shared.tools["search"].words
    tables: dict[str, object] = {}
    for flag, text in zip(words[::2], words[1::2], strict=True):
        assert flag == "--set"
        key, _, value = text.partition("=")
        try:
            json.loads(value)
        except ValueError:
            value = json.dumps(value)
        assign(tables, f"{key}={value}")
    (options,) = tables.values()
    assert isinstance(options, dict)
    return tool, options


@pytest.mark.parametrize(
    ("name", "pages", "summed_up"),
    [("", 0, True), ("pages", 3, True), ("page-texts", 3, False)],
)
def test_training_shows_snippets_and_evaluations_may_ask_for_pages(
    name: str, pages: int, summed_up: bool
) -> None:
    tool, options = settings(of("chat", *variants("chat").get(name, ())))
    assert tool == "web_search"
    read = WebSearchOptions.model_validate(options)
    assert (read.pages, read.summariser is not None, read.visit) == (pages, summed_up, False)
    assert read.key_variable == "SERPER_API_KEY"
    assert read.session_pages == 3


def test_a_local_index_takes_the_place_of_the_web() -> None:
    tool, options = settings(of("chat", *variants("chat")["local-index"]))
    assert tool == "search"
    SearchOptions.model_validate(options)


def test_evaluations_are_those_of_table_14() -> None:
    recipe = of("chat")
    suites = recipe.table("engine", EngineTable).evaluation.suites
    asked = {"gaia": 103, "hle": 100, "webwalker": 200, "xbench": 99}
    assert {suite.name: (suite.n, suite.metadata) for suite in suites} == {
        f"{name}{kind}-sampled": (n, metadata)
        for name, n in asked.items()
        for kind, metadata in (("", {}), ("-pages", {SESSION_PAGES: 3}))
    }
    for suite in suites:
        assert (suite.temperature, suite.top_p) == (0.6, 0.95)
        limits = suite.limits
        assert limits is not None
        assert (limits.turns, limits.action, limits.observation) == (10, 16483, 4096)
        assert (limits.response, limits.model) == (32768, 2048 + 32768)


@pytest.mark.parametrize("name", list(ROWS))
def test_a_set_is_read_from_its_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = load_file(FOLDER / "sets.py")
    monkeypatch.setattr(sets, "DATA", tmp_path)
    (tmp_path / f"{name}.jsonl").write_text(json.dumps(ROWS[name]) + "\n", encoding="utf-8")
    (task,) = getattr(sets, name)(0)
    assert (task.messages or ({"content": task.prompt},))[0]["content"] == "Who?"
    assert task.answers == ("Alda",)


def test_the_readme_names_every_variant_and_file() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert readme.startswith("# ") and readme.splitlines()[2]
    for file in FILES:
        assert all(f"`{name}`" in readme for name in variants(file))
    for link in re.findall(r"\]\(([^)#]+)", readme):
        assert (FOLDER / link).exists(), link
