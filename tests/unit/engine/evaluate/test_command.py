"""`engine eval` before its first question."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import EngineTable
from engine.errors import StartupError
from engine.offline.evaluate.command import evaluate
from engine.offline.evaluate.options import EvaluationOptions
from toolwright.recipe import load_recipe

PROMPTING = Path(__file__).resolve().parents[4] / "recipes/prompting"


async def test_a_recipe_of_toolwright_run_is_told_how_to_name_its_servers(tmp_path: Path) -> None:
    recipe = load_recipe(PROMPTING / "direct.toml", [f"run.folder='{tmp_path}/run'"])
    with pytest.raises(StartupError, match="--endpoint http://HOST:PORT"):
        await evaluate(recipe, EngineTable(), EvaluationOptions(), print)
    assert not (tmp_path / "run").exists()
