"""Mistakes cost no time: one sentence, exit status 1, torch not even imported."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from learner.cli import app
from learner.ending import ENDED, fail, read_ending
from learner.errors import TakenError, WorthlessError

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
        ("run", "run.max_staleness=2", "decoupled"),
        ("run", "run.engine=127.0.0.1:0", "toolwright run"),
        ("sft", "sft.steps=1", "sft.data"),
    ],
)
def test_a_mistake_in_the_recipe_is_named(
    tmp_path: Path, command: str, setting: str, named: str
) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    code, said = invoke(command, str(tmp_path / "recipe.toml"), "--set", setting)
    assert code == 1
    assert said.startswith("learner: ")
    assert named in said
    assert len(said.splitlines()) == 1


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    code, said = invoke("run", str(tmp_path / "none.toml"))
    assert code == 1
    assert "no recipe at" in said


@pytest.mark.parametrize("rank", ["0", "1"])
def test_rank_0_leaves_its_status_for_who_launched_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str
) -> None:
    file = tmp_path / "ended"
    monkeypatch.setenv(ENDED, str(file))
    monkeypatch.setenv("RANK", rank)
    with pytest.raises(typer.Exit) as caught:
        fail(WorthlessError("nothing\nat all \udcff"))
    assert caught.value.exit_code == 4
    assert read_ending(file) == ((4, "nothing\nat all ?") if rank == "0" else None)


def test_a_file_that_cannot_be_written_changes_no_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ENDED, str(tmp_path / "none" / "ended"))
    with pytest.raises(typer.Exit) as caught:
        fail(TakenError("taken"))
    assert caught.value.exit_code == 5
    assert "cannot be written" in capsys.readouterr().err
