"""The recipes of the search family: their options fit their code, and the ladder has its rungs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from console.config import ConsoleTable
from engine.config import EngineTable
from engine.offline.check.remarks import remarks
from engine.types import End, View
from tests.support.codecs import ToyCodec
from toolwright.imports import load_object
from toolwright.recipe import Recipe, check_all, load_recipe
from toolwright.types import StopReason, Task

RECIPES = Path(__file__).resolve().parents[3] / "recipes"
FAMILY = ("se_search", "search_r1", "auto_refine", "verltool/search")


SETS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wiki", "musique", "bamboogle")


def of(folder: str, *overrides: str) -> Recipe:
    return load_recipe(RECIPES / folder / "chat.toml", overrides)


def made(recipe: Recipe) -> tuple[Any, Any]:
    """Protocol and reward, as the engine makes them."""
    task = recipe.shared.task
    protocol = load_object(task.protocol, recipe.folder)(**task.protocol_options)
    return protocol, load_object(task.reward, recipe.folder)(**task.reward_options)


@pytest.mark.parametrize("folder", FAMILY)
def test_a_recipe_is_in_order(folder: str) -> None:
    recipe = of(folder)
    check_all(recipe)
    assert "warning" not in "\n".join(remarks(recipe))
    protocol, reward = made(recipe)
    assert protocol.tags == reward.chosen.tags
    task = recipe.shared.task
    turns = {task.limits.turns, task.protocol_options["t_max"], task.reward_options["t_max"]}
    assert len(turns) == 1
    readme = (recipe.folder / "README.md").read_text(encoding="utf-8").splitlines()
    assert readme[0].startswith("# ")
    assert readme[2]


@pytest.mark.parametrize("folder", FAMILY[:3])
def test_the_whole_recipe_is_chat_toml_on_the_papers_rows(folder: str) -> None:
    whole, base = load_recipe(RECIPES / folder / "paper.toml"), of(folder)
    check_all(whole)
    assert "warning" not in "\n".join(remarks(whole))
    assert whole.shared.task.source == "data/train.jsonl"
    same = {"source": ""}
    assert whole.shared.task.model_copy(update=same) == base.shared.task.model_copy(update=same)
    suites = whole.table("engine", EngineTable).evaluation.suites
    assert [suite.source for suite in suites] == [f"data/{name}.jsonl" for name in SETS]


TAGS: Mapping[str, tuple[str, str]] = {
    "se_search": ("documents", "memory"),
    "search_r1": ("information", ""),
    "auto_refine": ("documents", "refine"),
    "verltool/search": ("information", ""),
}


@pytest.mark.parametrize("folder", FAMILY)
def test_tags_are_those_of_the_system(folder: str) -> None:
    protocol, _ = made(of(folder))
    assert (protocol.tags.documents, protocol.tags.memory) == TAGS[folder]


def test_the_ladder() -> None:
    """From rung to rung something is added; the recipe itself is the last."""
    rungs = {one.name: one.set for one in of("se_search").table("console", ConsoleTable).ablations}
    assert list(rungs) == [
        *("se_sft", "se_r1", "se_search_r1", "se_autorefine", "se_mp", "se_mp_aq")
    ]

    def rung(name: str) -> tuple[Any, ...]:
        recipe = of("se_search", *rungs.get(name, ()))
        protocol, reward = made(recipe)
        assert protocol.tags == reward.chosen.tags
        options = recipe.shared.task.reward_options
        weights = [options[f"{part}_weight"] for part in ("memory", "query", "format")]
        return protocol.tags.memory, options["answer"], options.get("refined", 0.0), *weights

    assert rung("se_sft") == rung("se_full")
    assert of("se_search", *rungs["se_sft"]).shared.run.steps == 0
    assert rung("se_r1") == ("", "em", 0.0, 0.0, 0.0, 0.0)
    assert rung("se_search_r1") == ("", "em", 0.0, 0.0, 0.0, 0.0)
    assert rung("se_autorefine") == ("refine", "f1", 0.1, 0.0, 0.0, 0.0)
    assert rung("se_mp") == ("memory", "em", 0.0, 0.1, 0.0, 0.0)
    assert rung("se_mp_aq") == ("memory", "em", 0.0, 0.1, 0.01, 0.0)
    assert rung("se_full") == ("memory", "f1", 0.0, 0.1, 0.01, 0.01)


def test_r1_searches_nothing_and_is_not_told_that_it_could() -> None:
    rungs = {one.name: one.set for one in of("se_search").table("console", ConsoleTable).ablations}
    recipe = of("se_search", *rungs["se_r1"])
    protocol, reward = made(recipe)
    assert protocol.tags == reward.chosen.tags
    task = Task(id="t", messages=({"role": "user", "content": "Who wrote Emma?"},))
    (said,) = protocol.opening(task, [])
    assert "Who wrote Emma?" in said["content"] and "<answer>" in said["content"]
    assert "search" not in said["content"] and "information" not in said["content"]
    now = View(task=task, turn=0, actions=(), calls=(), events=(), tools=())
    decided = protocol.decide("<search> Emma </search>", "</search>", now, ToyCodec())
    assert decided == End(reason=StopReason.MAX_TURNS)
