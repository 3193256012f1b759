"""The doctor on every recipe that ships: the ports of each end, and a check without a result shows.

The quick part settles ports as the doctor does; the slow part runs its whole look at a recipe.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from console.asked.ports import MOST_TRIES, settle
from console.config import ConsoleTable, port_of
from console.doctor import recipe as of_recipe
from console.doctor.services import services
from console.doctor.types import Level, Patient
from console.errors import NothingStarted
from console.machine.programs import ask
from tests.unit.recipes.test_recipes import RECIPES, ROOT, over
from toolwright.recipe import load_recipe

STARTER = ROOT / "starter/recipe.toml"


@pytest.mark.quick
@over(RECIPES)
def test_ports_of_every_recipe_settle_as_the_doctor_settles_them(file: Path) -> None:
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
    monkeypatch.setattr(of_recipe, "ask", lambda argv, seconds: ask(argv, seconds=0.01))
    recipe = load_recipe(STARTER, [f"run.folder={tmp_path / 'run'}"])
    (found,) = of_recipe.checked(Patient(folder=tmp_path, environment={}, recipe=recipe))
    assert found.level is Level.UNKNOWN
    assert found.sentence == "engine check: no answer in 0 s, so it is not known"


@pytest.mark.slow
@over(RECIPES)
def test_the_doctor_comes_to_an_end_on_every_recipe(file: Path, tmp_path: Path) -> None:
    overrides = [f"run.folder={tmp_path / 'run'}"]
    recipe = load_recipe(file, overrides)
    patient = Patient(
        folder=tmp_path, environment=dict(os.environ), recipe=recipe, overrides=overrides
    )
    found = of_recipe.checked(patient)
    assert found
    assert Level.UNKNOWN not in {one.level for one in found}


@pytest.mark.quick
async def test_a_tool_that_serves_what_a_run_makes_first_is_no_problem() -> None:
    recipe = load_recipe(ROOT / "verltool/sql/recipe.toml")
    databases = recipe.run_folder / "databases"
    if databases.exists():
        pytest.skip("the recipe was run here, so its tool can be started")
    (found,) = await services(Patient(folder=ROOT, environment={}, recipe=recipe))
    assert found.level is Level.WARNING
    assert found.sentence == (
        f"tools.sql: not started here: {databases} is not there yet, `toolwright run` makes it by "
        "[[console.prepare]] 'databases'"
    )
