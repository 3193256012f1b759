"""Parts of a step: they add up, and steps that do not count do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.errors import BenchError
from bench.step import PARTS, row_of
from console.compare.runs import read_runs

LINE = {
    "lease_s": 2.0,
    "train_s": 5.0,
    "logprobs_s": 1.0,
    "export_s": 0.25,
    "publish_s": 0.75,
    "step_s": 9.0,
    "trajectories": 16,
    "generate_s": 1.5,
    "tool_s": 0.25,
    "reward_s": 0.125,
    "tokens_per_s": 100.0,
}


def write_run(folder: Path, *changes: dict[str, float]) -> Path:
    folder.mkdir()
    lines = [{"step": step, **LINE, **own} for step, own in enumerate(changes, 1)]
    (folder / "learner.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8"
    )
    return folder


def test_the_parts_are_the_step(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", {"step_s": 1e6}, {}, {"checkpoint_s": 1.0, "step_s": 11.0})
    row = row_of(*read_runs([run]), 1)
    assert row.steps == 2
    assert row.parts == {
        "rollout": 2.0,
        "log-probs": 1.0,
        "update": 4.0,
        "publish": 1.0,
        "checkpoint": 0.5,
        "other": 1.5,
    }
    assert sum(filter(None, row.parts.values())) == row.step == 10.0
    assert row.trajectory == {"generate": 1.5, "tool": 0.25, "reward": 0.125}


def test_tokens_a_second_are_those_of_all_steps_together(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", {"train_s": 1.0, "tokens_per_s": 10.0}, {"train_s": 4.0})
    assert row_of(*read_runs([run]), 0).tokens_per_s == pytest.approx((10 + 400) / 5)


def test_what_an_older_learner_did_not_tell_is_unknown(tmp_path: Path) -> None:
    """Also where a newer one went on with the run: a mean over some steps would be another."""
    run = write_run(tmp_path / "a", {}, {})
    text = (run / "learner.jsonl").read_text(encoding="utf-8")
    (run / "learner.jsonl").write_text(text.replace('"logprobs_s"', '"old_s"', 1), encoding="utf-8")
    row = row_of(*read_runs([run]), 0)
    assert (row.parts["log-probs"], row.parts["update"]) == (None, 5.0)
    assert sum(filter(None, row.parts.values())) == row.step
    result = CliRunner().invoke(app, ["step", str(run), "--skip", "0"])
    cells = [line.split()[:5] for line in result.stdout.splitlines()]
    assert ["a", "2", "2.00", "unknown", "5.00"] in cells


def test_what_cannot_be_told_is_a_sentence(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", {})
    with pytest.raises(BenchError, match=r"has 1 steps .* lower --skip"):
        row_of(*read_runs([run]), 1)
    (tmp_path / "b").mkdir()
    for bad in (run, tmp_path / "b"):
        result = CliRunner().invoke(app, ["step", str(bad)])
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


def test_the_table_and_the_file(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, {}, {}) for name in "ab"]
    output = tmp_path / "steps.json"
    result = CliRunner().invoke(app, ["step", *map(str, runs), "--json", str(output)])
    assert result.exit_code == 0
    assert all(name in result.stdout for name in PARTS)
    cells = [line.split() for line in result.stdout.splitlines()]
    assert cells.count(["22%", "11%", "44%", "11%", "0%", "11%"]) == 2
    assert ["a", "16", "1.50", "0.25", "0.12"] in cells
    assert [row["run"] for row in json.loads(output.read_text(encoding="utf-8"))["rows"]] == [
        "a",
        "b",
    ]
