"""MTR's recipes: their options fit their code, and each ablation takes away what it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from console.asked.ports import settle
from console.config import ConsoleTable
from engine.config import EngineTable
from engine.offline.check.remarks import remarks
from tests.unit.mtr.conftest import FOLDER
from toolsvc.plugin.registry import parse_settings
from toolsvc.sources.simulated.options import SimulatedOptions
from toolwright.imports import load_object
from toolwright.recipe import Recipe, check_all, load_recipe

FILES = ("recipe", "chat", "paper")
PAPERS = {
    "mtr_sft_only",
    "mtr_no_sft",
    "mtr_no_tools",
    "mtr_no_pre",
    "mtr_no_post",
    "mtr_no_checks",
}


def of(file: str, *overrides: str) -> Recipe:
    return load_recipe(FOLDER / f"{file}.toml", overrides)


def ablations(file: str) -> Mapping[str, tuple[str, ...]]:
    return {one.name: one.set for one in of(file).table("console", ConsoleTable).ablations}


EVERY = [
    (file, name, rung) for file in FILES for name, rung in (("", ()), *ablations(file).items())
]


def played(recipe: Recipe) -> SimulatedOptions:
    """The options of the tools, as `toolsvc serve` reads them."""
    word, *rest = recipe.shared.tools["played"].words
    assert word == "simulated:"
    settings = parse_settings([one for one in rest if one != "--set"])
    return SimulatedOptions.model_validate(settings["simulated"])


@pytest.mark.parametrize(("file", "name", "rung"), EVERY)
def test_every_rung_is_in_order(file: str, name: str, rung: tuple[str, ...]) -> None:
    recipe = of(file, *rung)
    check_all(recipe)
    if not rung:
        assert "warning" not in "\n".join(remarks(recipe))
    task = recipe.shared.task
    protocol: Any = load_object(task.protocol, recipe.folder)(**task.protocol_options)
    load_object(task.reward, recipe.folder)(**task.reward_options)
    assert protocol._options.tools is (name != "mtr_no_tools")
    options = played(recipe)
    assert options.pre_check is (name not in ("mtr_no_pre", "mtr_no_checks"))
    assert options.post_check is (name not in ("mtr_no_post", "mtr_no_checks"))
    same = {"pre_check": True, "post_check": True}
    assert options.model_copy(update=same) == played(of(file)), "the same actor plays in all"
    model = str(recipe.shared.policy.model)
    assert (model == recipe.raw["sft"]["model"]) is (name == "mtr_no_sft")


@pytest.mark.parametrize("file", FILES)
def test_the_papers_ablations_are_there(file: str) -> None:
    assert set(ablations(file)) >= PAPERS


@pytest.mark.parametrize(("file", "name", "rung"), [one for one in EVERY if one[0] == "recipe"])
def test_the_tools_are_told_where_their_player_is(
    file: str, name: str, rung: tuple[str, ...]
) -> None:
    recipe = of(file, *rung)
    ports = iter(range(20_001, 20_099))
    found = settle(recipe, recipe.table("console", ConsoleTable), lambda: next(ports))
    (player,) = found.services
    told = played(of(file, *rung, *found.overrides)).endpoint
    assert player.ready.removesuffix("/health") == told.removesuffix("/v1")
    assert ":0" not in told


@pytest.mark.parametrize("file", ("recipe", "chat"))
def test_what_the_policy_knows_without_tools_is_asked(file: str) -> None:
    suites = of(file).table("engine", EngineTable).evaluation.suites
    off = [suite for suite in suites if suite.metadata.get("tools") == "off"]
    assert {suite.name for suite in off} >= {"tools-off-greedy"}
    assert all(suite.name.startswith("tools-off") for suite in off)


def test_the_papers_numbers_are_those_of_chat_toml() -> None:
    raw = of("chat").raw
    assert (raw["sft"]["epochs"], raw["sft"]["optimizer"]["lr"]) == (2, 3e-6)
    assert (raw["run"]["groups_per_step"], raw["run"]["group_size"]) == (128, 8)
    assert raw["learner"]["kl"] == {"coefficient": 0.01, "estimator": "k3"}
    assert raw["task"]["limits"]["turns"] == 12
