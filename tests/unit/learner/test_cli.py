"""Mistakes cost no time: one sentence, exit status 1, torch not even imported."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from learner.cli import app

RECIPE = """
[run]
name = "x"
folder = "run"
steps = 1
groups_per_step = 1
group_size = 2
[policy]
model = "model"
[task]
source = "x.jsonl"
reward = "x:y"
[sampler]
endpoints = ["http://127.0.0.1:1"]
"""


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    ("command", "setting", "named"),
    [
        ("run", "learner.optimizer.rate=1", "learner.optimizer.rate"),
        ("run", "learner.parallel.pipeline=0", "learner.parallel.pipeline"),
        ("run", "run.max_staleness=2", "decoupled"),
        ("sft", "sft.steps=1", "sft.data"),
    ],
)
def test_a_mistake_in_the_recipe_is_named(
    tmp_path: Path, command: str, setting: str, named: str
) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    code, said = invoke(command, str(tmp_path / "recipe.toml"), "--set", setting)
    assert code == 1
    assert said.startswith("learner: ")
    assert named in said
    assert len(said.splitlines()) == 1


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    code, said = invoke("run", str(tmp_path / "none.toml"))
    assert code == 1
    assert "no recipe at" in said


def test_help_teaches() -> None:
    result = CliRunner().invoke(app, ["run", "--help"])
    for word in ("engine serve", "checkpoint", "--set", "goes on"):
        assert word in " ".join(result.stdout.split())
