"""What lines of a run folder become in a tracker, and how they are read as they grow."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from console.record import tail
from console.record.tail import Tail
from console.track.points import Point, point


def test_a_training_steps_numbers_keep_their_names() -> None:
    row = {"step": 3, "reward": 0.5, "stop/answered": 4, "version": "a-3", "skipped_update": True}
    numbers = {"reward": 0.5, "stop/answered": 4.0, "measured/searches": 1.5}
    found = point("learner", {**row, "measured/searches": 1.5})
    assert found == Point(stream="learner", step=3, values=numbers)


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"step": "3", "reward": 1.0},
        {"step": True, "reward": 1.0},
        {"step": -1, "reward": 1.0},
        {"step": 2**60, "reward": 1.0},
        {"step": 3},
        {"step": 3, "reward": None},
        {"step": 3, "reward": math.nan},
        {"step": 3, "reward": 10**400},
    ],
)
def test_a_row_without_a_step_or_a_finite_number_is_no_point(row: dict[str, object]) -> None:
    assert point("learner", row) is None


def test_rows_are_read_once_whole_and_go_on_from_a_place(tmp_path: Path) -> None:
    file = tmp_path / "learner.jsonl"
    reader = Tail(file)
    assert reader.read() == []
    file.write_text('{"step": 1}\n{"step": 2}\n{"st', encoding="utf-8")
    assert reader.read() == [{"step": 1}, {"step": 2}]
    assert reader.read() == []
    with file.open("a", encoding="utf-8") as more:
        more.write('ep": 3}\n')
    assert Tail(file, reader.place).read() == [{"step": 3}]


def test_a_file_that_shrank_is_read_from_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "learner.jsonl"
    file.write_text('{"step": 1}\n{"step": 2}\n', encoding="utf-8")
    reader = Tail(file)
    reader.read()
    file.write_text('{"step": 9}\n', encoding="utf-8")
    assert reader.read() == [{"step": 9}]


def test_a_read_is_bounded_and_a_line_without_an_end_does_not_stop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "MOST", 64)
    file = tmp_path / "learner.jsonl"
    lines = [json.dumps({"step": n}) for n in range(20)]
    file.write_text("\n".join([*lines[:10], "x" * 500, *lines[10:], ""]), encoding="utf-8")
    reader = Tail(file)
    found: list[dict[str, object]] = []
    for _ in range(40):
        found += reader.read()
    # Of the long line's own end nothing is taken for a row.
    assert found == [{"step": n} for n in range(20)]
    assert reader.place == file.stat().st_size


def test_an_evaluation_without_a_suite_is_no_point() -> None:
    assert point("evaluations", {"step": 1, "reward": 1.0, "suite": 7}) is None
