"""The page of a run's tool memory: `memory report` writes it beside the run's own report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from console.machine.programs import ask, module
from console.record.files import MEMORY_PAGE
from toolwright.recipe import Recipe

FOLDER = "memory"
"""Folder in the run, for the store of `memory serve` that the recipe does not name."""
STORE_VARIABLE = "TOOLWRIGHT_MEMORY_STORE"
"""For `memory report`: on its command line everybody would see the password of a store."""
LONGEST_S = 120.0


def write_memory_page(recipe: Recipe, run: Path) -> str:
    """Writes MEMORY_PAGE into the run's folder if the recipe has a memory. Returns the reason of a
    failure, else ""."""
    table = recipe.raw.get("memory")
    if not isinstance(table, Mapping):
        return ""
    named = str(table.get("store") or "")
    store = named if "://" in named else str(recipe.resolve(named) if named else run / FOLDER)
    words = ("report", "--output", str(run / MEMORY_PAGE))
    environment = {**os.environ, STORE_VARIABLE: store}
    said = ask(module("memory.cli", *words), seconds=LONGEST_S, environment=environment)
    return "" if said.status == 0 else said.last_line.removeprefix("memory: ")
