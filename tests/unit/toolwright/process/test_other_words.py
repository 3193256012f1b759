"""Commands of other programs: the hint names ours."""

from __future__ import annotations

import importlib

import pytest
from typer.testing import CliRunner

pytestmark = pytest.mark.quick

RUN = "`toolwright run RECIPE` trains, and the same command goes on with a run"
EVAL = "`engine eval RECIPE` evaluates a policy"


@pytest.mark.parametrize("program", ["console", "engine", "learner"])
@pytest.mark.parametrize(("word", "hint"), [("train", RUN), ("evaluate", EVAL)])
def test_a_word_of_other_programs_has_a_hint(program: str, word: str, hint: str) -> None:
    done = CliRunner().invoke(importlib.import_module(f"{program}.cli").app, [word, "recipe.toml"])
    assert done.exit_code == 2
    assert f"No such command '{word}': {hint}" in " ".join(done.stderr.split())


def test_a_slip_of_the_pen_and_a_command_stay_as_they_are() -> None:
    app = importlib.import_module("console.cli").app
    assert "Did you mean" in CliRunner().invoke(app, ["runn"]).stderr
    assert CliRunner().invoke(app, ["run", "--help"]).exit_code == 0
