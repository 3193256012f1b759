"""What a good run prints last, and how trajectories read in a terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from bench.demo.__main__ import app
from bench.demo.progress import Screen
from bench.demo.session import show
from bench.demo.transcript import as_text, before_and_after, question
from bench.demo.types import Outcome


def test_paths_come_last_and_exist(outcome: Outcome, tmp_path: Path) -> None:
    out = io.StringIO()
    show(outcome, tmp_path, Screen(Console(file=out, soft_wrap=True, highlight=False)))
    lines = out.getvalue().splitlines()
    assert lines[-1] == str(tmp_path / "summary.json")
    assert json.loads(Path(lines[-1]).read_text())["heldout"]["n"] == 1024
    assert (tmp_path / "report.html").is_file()
    assert sum(line.strip() == "right" for line in lines) == 3
    assert sum(line.strip() == "wrong, it is 42" for line in lines) == 3


def test_a_trajectory_is_question_tokens_verdict(outcome: Outcome) -> None:
    before, after = before_and_after(outcome.runs[0], "heldout")
    assert (len(before), len(after)) == (3, 3)
    assert as_text(after[0]).plain == (
        "What is 6 < 7 times?\n"
        "    <python> print(6*7)</python><result> 42</result><answer> 42</answer><|im_end|>\n"
        "    right"
    )


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [
        (
            "<|im_start|>system\nx<|im_end|>\n<|im_start|>user\nhow?<|im_end|>\n<|im_start|>a\n",
            "how?",
        ),
        ("plain words", "plain words"),
    ],
)
def test_question(prompt: str, asked: str) -> None:
    assert question(prompt) == asked


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--folder", str(tmp_path)])
    assert result.exit_code == 1
    assert f"{tmp_path} exists already" in result.stderr


def test_a_broken_override_is_refused() -> None:
    result = CliRunner().invoke(app, ["--set", "nonsense"])
    assert result.exit_code == 2
    assert "table.key=value" in result.stderr


def test_an_unknown_key_is_refused_before_anything_starts(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["--folder", str(tmp_path / "new"), "--set", "learner.optimizer.rate=1"]
    )
    assert result.exit_code == 1
    assert "learner.optimizer.rate: unknown key" in result.stderr
