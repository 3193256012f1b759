"""The doctor on every recipe that ships: the ports of each end, and a check without a result shows.

The quick part settles ports; the slow part runs `engine check` as the doctor does.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from console.asked.ports import MOST_TRIES, settle
from console.asked.setup import Options, set_up
from console.config import ConsoleTable, port_of
from console.doctor import recipe as of_recipe
from console.doctor.types import Level, Patient
from console.errors import NothingStarted
from console.machine.programs import ask
from tests.unit.recipes.test_recipes import RECIPES, ROOT, over
from toolwright.recipe import load_recipe

STARTER = ROOT / "starter/recipe.toml"


@pytest.mark.quick
@over(RECIPES)
def test_ports_of_every_recipe_settle(file: Path) -> None:
    recipe = load_recipe(file)
    offered = itertools.count(1)
    addresses = settle(recipe, recipe.table("console", ConsoleTable), offered.__next__)
    assert next(offered) < MOST_TRIES
    ports = [port_of(one.ready) for one in addresses.services]
    assert 0 not in ports
    assert len(set(ports)) == len(ports)


@pytest.mark.quick
@pytest.mark.parametrize("port", [1, 80, 65535])
def test_one_port_offered_again_and_again_is_an_error_and_no_loop(port: int) -> None:
    recipe = load_recipe(STARTER)
    with pytest.raises(NothingStarted, match="name the ports that stand as 0"):
        settle(recipe, recipe.table("console", ConsoleTable), lambda: port)


@pytest.mark.quick
def test_an_engine_check_that_does_not_end_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_recipe, "ask", lambda argv, **_more: ask(argv, seconds=0.01))
    (found,) = of_recipe.recipe(_patient(STARTER, tmp_path / "run", {}))
    assert found.level is Level.UNKNOWN
    assert found.sentence == "engine check: no answer in 0 s, so it is not known"


@pytest.mark.slow
@over(RECIPES)
def test_the_doctor_comes_to_an_end_on_every_recipe(file: Path, tmp_path: Path) -> None:
    found = list(of_recipe.recipe(_patient(file, tmp_path / "run", os.environ)))
    assert found
    assert Level.UNKNOWN not in {one.level for one in found}


@pytest.mark.quick
def test_a_tool_that_serves_what_a_run_makes_first_is_no_problem(tmp_path: Path) -> None:
    file = ROOT / "verltool/sql/recipe.toml"
    (found,) = of_recipe.tools(_patient(file, tmp_path / "run", {}))
    assert found.level is Level.WARNING
    assert found.sentence == (
        f"tools.sql: not started here: {tmp_path / 'run/databases'} is not there yet, "
        "`toolwright run` makes it by [[console.prepare]] 'databases'"
    )


def _patient(file: Path, run: Path, environment: Mapping[str, Any]) -> Patient:
    return Patient(environment=environment, setup=set_up(Options(recipe=file, folder=run)))
