"""What a run folder holds, read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.demo import breakdown
from bench.demo.errors import RecordBroken
from bench.demo.records import read_record
from bench.demo.types import Outcome


def lines(path: Path, *rows: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def evaluation(step: int, reward: float) -> dict[str, Any]:
    return {"suite": "s", "lineage": "a", "step": step, "n": 10, "reward": reward, "stderr": 0.1,
            "temperature": 1.0, "seconds": 2.0, "calls": 1.0, "response_tokens": 20.0}  # fmt: skip


def test_a_folder_without_files_is_an_empty_record(tmp_path: Path) -> None:
    record = read_record(tmp_path)
    assert (record.steps, record.evaluations, record.samples) == ((), (), ())


def test_the_last_evaluation_of_a_version_counts(tmp_path: Path) -> None:
    lines(
        tmp_path / "evaluations.jsonl", evaluation(25, 0.5), evaluation(0, 0.1), evaluation(0, 0.2)
    )
    record = read_record(tmp_path)
    assert [(e.step, e.success) for e in record.curve("s")] == [(0, 0.2), (25, 0.5)]
    assert record.at("s", 25) is not None
    assert record.at("s", 26) is None


def test_steps_keep_their_numbers(tmp_path: Path) -> None:
    lines(
        tmp_path / "learner.jsonl",
        {"step": 1, "reward": 0.5, "version": "a.1", "skipped_update": False, "gap_max": 1e-6},
    )
    (step,) = read_record(tmp_path).steps
    assert (step.step, step.reward, step.values["gap_max"]) == (1, 0.5, 1e-6)
    assert set(step.values) == {"step", "reward", "gap_max"}
    assert step.tokens_per_second is None


def test_a_line_that_does_not_fit_is_named(tmp_path: Path) -> None:
    lines(tmp_path / "evaluations.jsonl", {"suite": "s"})
    with pytest.raises(RecordBroken, match=r"evaluations\.jsonl: KeyError\('step'\)"):
        read_record(tmp_path)


def test_shares_of_time_add_up(outcome: Outcome) -> None:
    record = outcome.runs[0].record
    trajectory = {share.name: share.seconds for share in breakdown.of_trajectory(record)}
    assert trajectory["generate"] == pytest.approx(0.3)
    assert sum(trajectory.values()) == pytest.approx(0.51)
    assert trajectory["queue"] == pytest.approx(0.05)
    step = {share.name: share.seconds for share in breakdown.of_step(record)}
    assert sum(step.values()) == pytest.approx(2.0)
