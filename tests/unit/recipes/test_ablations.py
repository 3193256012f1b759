"""Every rung of a packaged recipe's ladder is a recipe that all processes accept."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.config import ConsoleTable
from toolwright.process.packaged import packaged
from toolwright.recipe import check_all, load_recipe

pytestmark = pytest.mark.quick

RECIPES = packaged("recipes")
LADDERS = {
    f"{file.relative_to(RECIPES)} {rung.name}": (file, rung.set)
    for file in sorted(RECIPES.rglob("*.toml"))
    if "presets" not in file.parts and "[[console.ablations]]" in file.read_text(encoding="utf-8")
    for rung in load_recipe(file).table("console", ConsoleTable).ablations
}


@pytest.mark.parametrize("rung", LADDERS)
def test_a_rung_can_be_read(rung: str) -> None:
    file, changes = LADDERS[rung]
    assert check_all(load_recipe(Path(file), changes)) == []
