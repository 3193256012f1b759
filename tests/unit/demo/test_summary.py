"""summary.json: its exact shape, means over seeds, standard errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.demo.errors import RecordBroken
from bench.demo.summary import summary, table, write_summary
from bench.demo.types import Outcome, Record


def pairs(comparison: dict[str, Any]) -> tuple[float, float, float, float]:
    sampled, greedy = comparison["sampled"], comparison["greedy"]
    return sampled["before"], sampled["after"], greedy["before"], greedy["after"]


def test_shape_and_means(outcome: Outcome, tmp_path: Path) -> None:
    write_summary(outcome, tmp_path / "summary.json")
    found = json.loads((tmp_path / "summary.json").read_text())
    assert list(found) == [
        "heldout", "seeds", "control", "withheld", "unseen_wordings", "seconds", "versions",
    ]  # fmt: skip
    assert found["heldout"]["n"] == 1024
    assert pairs(found["heldout"]) == (0.2, 0.95, 0.25, 0.95)
    assert [seed["seed"] for seed in found["seeds"]] == [1, 2]
    assert pairs(found["seeds"][0]["heldout"]) == (0.2, 0.9, 0.25, 0.9)
    assert pairs(found["control"]) == (0.2, 0.2, 0.25, 0.2)
    assert set(found["seconds"]) >= {"total", "training", "warm_up"}
    assert found["versions"]["python"] == "3.11.7"


def test_the_error_of_a_mean_shrinks_with_the_seeds(outcome: Outcome) -> None:
    found = summary(outcome)
    assert found["seeds"][0]["heldout"]["stderr"]["sampled"]["after"] == 0.01
    assert found["heldout"]["stderr"]["sampled"]["after"] == pytest.approx(0.01 / 2**0.5, abs=1e-5)


def test_no_control_is_null(outcome: Outcome) -> None:
    assert summary(replace(outcome, control=None))["control"] is None


def test_a_missing_evaluation_is_said(outcome: Outcome) -> None:
    run = outcome.runs[0]
    without = tuple(
        e for e in run.record.evaluations if (e.suite, e.step) != ("heldout-greedy", run.last_step)
    )
    broken = replace(run, record=replace(run.record, evaluations=without))
    with pytest.raises(RecordBroken, match="seed 1: heldout was not evaluated before and after"):
        summary(replace(outcome, runs=(broken,)))


def test_different_questions_are_refused(outcome: Outcome) -> None:
    run = outcome.runs[0]
    changed = tuple(replace(e, n=512) if e.step == 0 else e for e in run.record.evaluations)
    broken = replace(run, record=Record(evaluations=changed))
    with pytest.raises(RecordBroken, match="different questions"):
        summary(replace(outcome, runs=(broken,)))


def test_the_table_prints_standard_errors(outcome: Outcome) -> None:
    text = "\n".join(table(outcome))
    assert "0.200 ±0.010 -> 0.900 ±0.010" in text
    for row in ("seed 1", "mean", "control", "withheld", "never trained"):
        assert row in text


def test_the_columns_of_the_table_stand_below_each_other(outcome: Outcome) -> None:
    main, *others = outcome.subject.suites
    long = replace(main, title="questions of a very long kind that are held out")
    subject = replace(outcome.subject, suites=(long, *others))
    lines = table(replace(outcome, subject=subject))
    assert len({line.index(" ±") for line in lines[1:]}) == 1
