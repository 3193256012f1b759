"""The recipes: the paper's numbers, and options that fit their code."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.config import EngineTable
from engine.core.text.messages import opening
from engine.offline.check.remarks import remarks
from tests.support.recipes import Part
from tests.unit.verltool_swe.conftest import FOLDER
from toolsvc.tools.swe.options import SweOptions
from toolwright.imports import load_object
from toolwright.recipe import check_all, load_recipe


@pytest.mark.parametrize("file", ["chat", "paper", "recipe", "published"])
def test_a_recipe_is_in_order(file: str) -> None:
    recipe = load_recipe(FOLDER / f"{file}.toml")
    check_all(recipe)
    assert "warning" not in "\n".join(remarks(recipe))
    task = recipe.shared.task
    load_object(task.protocol, recipe.folder)(**task.protocol_options)
    load_object(task.reward, recipe.folder)
    suites = recipe.table("engine", EngineTable).evaluation.suites
    for source in (task.source, *(suite.source for suite in suites)):
        assert source.startswith("data/") or callable(load_object(source, recipe.folder))
    assert recipe.shared.run.engine == "127.0.0.1:0"
    word, *rest = recipe.shared.tools["swe"].serve
    assert word == "swe"
    given = [one.removeprefix("swe.").split("=", 1) for one in rest if one.startswith("swe.")]
    options = {key: json.loads(value) if value.startswith("[") else value for key, value in given}
    SweOptions.model_validate(options)


@pytest.mark.parametrize("file", ["chat", "paper"])
def test_the_papers_numbers_are_those_of_chat_toml(file: str) -> None:
    recipe = load_recipe(FOLDER / f"{file}.toml")
    shared, limits = recipe.shared, recipe.shared.task.limits
    assert (shared.run.groups_per_step, shared.run.group_size) == (32, 8)
    assert (limits.turns, limits.action, limits.observation) == (100, 10240, 10240)
    assert (limits.response, limits.seconds) == (22528, 1200)
    assert shared.tools["swe"].run_limit_s == 90
    assert recipe.raw["learner"]["optimizer"]["lr"] == 2e-6
    (suite,) = recipe.table("engine", EngineTable).evaluation.suites
    assert (suite.temperature, suite.n, suite.limits.response) == (1.0, 500, 40960)


def test_the_sets_name_image_and_verification(part: Part, tmp_path: Path) -> None:
    """One row each of the published columns."""
    (tmp_path / "r2e").mkdir()
    row = {
        "problem_statement": "[ISSUE]\nIt breaks.\n[/ISSUE]",
        "docker_image": "r2e/pages:3f2a",
        "repo_name": "pages",
        "expected_output_json": '{"test_one": "PASSED", "test_two": "FAILED"}',
        "commit_hash": "3f2a",
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "r2e/train.parquet")
    verified = {
        "problem_statement": "It breaks.",
        "instance_id": "pages__pages-1",
        "repo": "pages/pages",
        "base_commit": "3f2a",
        "FAIL_TO_PASS": '["test_two"]',
        "PASS_TO_PASS": '["test_one"]',
        "image_name": "swebench/pages-1",
    }
    pq.write_table(pa.Table.from_pylist([verified]), tmp_path / "verified.parquet")
    with pytest.MonkeyPatch.context() as patch:
        training, heldout = part("data.training"), part("data.heldout")
        patch.setitem(training.__globals__, "TRAINING", tmp_path / "r2e")
        patch.setitem(heldout.__globals__, "HELDOUT", tmp_path / "verified.parquet")
        first, again = (task for task, _ in zip(training(1), range(2), strict=False))
        (only,) = heldout(1)
    assert first.metadata["image"] == "r2e/pages:3f2a"
    assert first.metadata["verification"] == again.metadata["verification"] == "3f2a"
    assert opening(first)[-1]["content"] == "It breaks."
    assert only.metadata["image"] == "swebench/pages-1"
    assert only.metadata["verification"] == "pages__pages-1"
    for task in (first, only):
        assert "test_two" not in str((task.metadata, opening(task))), "tools are told no answer"
