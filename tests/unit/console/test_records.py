"""What a run folder holds, read back, whatever was written there."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from console.errors import RecordBroken
from console.record import files
from console.record.files import read_record
from console.record.resolved import read_resolved
from console.record.run import read_run
from tests.support import run_folders
from tests.support.run_folders import evaluation, lines, sample, step

NOBODY = 65534
"""The user of that name."""


def test_of_a_step_and_a_version_that_came_twice_the_last_counts(tmp_path: Path) -> None:
    rows = [step(1), step(2), step(3), step(2, lineage="cd", reward=0.9), step(3, lineage="cd")]
    lines(tmp_path / "learner.jsonl", rows)
    measured = [evaluation("s", 25, 0.5), evaluation("s", 0, 0.1), evaluation("s", 0, 0.2)]
    lines(tmp_path / "evaluations.jsonl", measured)
    record = read_record(tmp_path)
    assert [(s.step, s.lineage) for s in record.steps] == [(1, "ab"), (2, "cd"), (3, "cd")]
    assert record.steps[1].reward == 0.9
    assert [(e.step, e.reward) for e in record.curve("s")] == [(0, 0.2), (25, 0.5)]


def test_numbers_and_the_learners_reason_are_kept_and_what_is_no_number_is_unknown(
    tmp_path: Path,
) -> None:
    text = '{"step": 1, "reward": NaN, "gap_max": Infinity, "version": "a.1", "x": 1e400}\n'
    (tmp_path / "learner.jsonl").write_text(
        text + json.dumps(step(2, worthless="all masked")), encoding="utf-8"
    )
    first, second = read_record(tmp_path).steps
    assert (first.reward, first.values, first.taught) == (None, {}, None)
    assert (second.worthless, second.tokens_per_second, second.masked_share) == (
        "all masked", 25 * 128 / 2, 0,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["learner.jsonl", "evaluations.jsonl", "samples.jsonl"])
def test_a_line_that_does_not_fit_costs_itself_and_is_said(tmp_path: Path, name: str) -> None:
    good = {
        "learner.jsonl": step(1),
        "evaluations.jsonl": evaluation("s", 1, 0.5),
        "samples.jsonl": sample(1, 0, right=True),
    }[name]
    broken = [b"\xff\xfe{}", b"[1]", b'{"step": -1}', b"[" * 50_000, b'{"suite": "s"}', b"{"]
    data = b"\n".join([*broken[:-1], json.dumps(good).encode(), broken[-1]])
    (tmp_path / name).write_bytes(data)
    record = read_record(tmp_path)
    assert len(record.steps) + len(record.evaluations) + len(record.samples) == 1
    (remark,) = record.remarks
    assert remark.startswith(f"{tmp_path / name}: 6 lines are no ")


STRANGE_SAMPLES: list[dict[str, Any]] = [
    *({"segments": wrong} for wrong in ("text", [{}], [{"author": 1, "text": "x"}])),
    *({"answers": None}, {"reward": None}, {"index": "first"}, {"suite": ["s"]}),
]


@pytest.mark.parametrize("more", STRANGE_SAMPLES, ids=str)
def test_a_sample_of_another_shape_is_none(tmp_path: Path, more: dict[str, Any]) -> None:
    lines(tmp_path / "samples.jsonl", [{**sample(0, 0, right=True), **more}])
    record = read_record(tmp_path)
    assert record.samples == () and len(record.remarks) == 1


def test_of_samples_the_first_and_the_last_version_are_held(tmp_path: Path) -> None:
    rows = [sample(at, index, right=True) for at in (0, 20, 40, 10) for index in range(2)]
    lines(tmp_path / "samples.jsonl", rows)
    assert [(s.step, s.index) for s in read_record(tmp_path).samples] == [
        (0, 0), (0, 1), (40, 0), (40, 1),
    ]  # fmt: skip


def test_a_very_long_run_is_thinned_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_STEPS", 100)
    lines(tmp_path / "learner.jsonl", ({"step": n, "reward": n} for n in range(1, 1002)))
    record = read_record(tmp_path)
    assert 50 <= len(record.steps) <= 101
    assert record.steps[-1].step == 1001
    assert "one of 16 is read" in record.remarks[0]


def test_a_folder_that_is_no_run_is_a_sentence(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing", Path("\0")):
        with pytest.raises(RecordBroken, match="is no run folder"):
            read_run(folder)
    (tmp_path / "learner.jsonl").mkdir()
    with pytest.raises(RecordBroken, match="is no run folder"):
        read_run(tmp_path)


def test_a_file_that_cannot_be_read_is_a_sentence() -> None:
    """Root reads everything, so root is somebody else meanwhile."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        lines(folder / "learner.jsonl", [step(1)]).chmod(0)
        was = os.geteuid()
        if was == 0:
            os.seteuid(NOBODY)
        try:
            with pytest.raises(RecordBroken, match="cannot be read"):
                read_run(folder)
        finally:
            os.seteuid(was)


def test_a_run_tells_what_it_was_told(tmp_path: Path) -> None:
    run = read_run(run_folders.whole(tmp_path / "a", seed=7, rate=0.0))
    assert (run.steps, run.planned, run.resolved.whole("run.seed")) == (50, 50, 7)
    assert run.resolved.control
    assert run.resolved.words.headline == "Held-out success"
    assert run.resolved.suites["heldout-greedy"] == 0.0
    assert run.resolved.flat["engine.evaluation.suites.heldout-greedy.temperature"] == "0.0"
    assert run.remarks == ()


def test_a_run_by_hand_has_no_console_files(tmp_path: Path) -> None:
    lines(tmp_path / "learner.jsonl", [step(1)])
    told = [{"event": "serving", "timestamp": f"2026-11-23T00:00:0{n}Z"} for n in (1, 9)]
    lines(tmp_path / "engine.jsonl", [*told[:1], {"timestamp": 5}, {"timestamp": "now"}, told[1]])
    run = read_run(tmp_path)
    assert run.course.starts == () and run.planned is None
    assert run.last is not None and run.began is not None and run.last - run.began == 8


BROKEN_TABLES = [
    b"",
    b"[1]",
    b"\xff\xfe",
    b'{"a":' * 3000 + b"1" + b"}" * 3000,
    b'{"console": {"report": {"headline": 5}}, "shared": [1]}',
]


@pytest.mark.parametrize("data", BROKEN_TABLES, ids=lambda data: repr(data[:12]))
def test_a_recipe_that_cannot_be_read_costs_itself(tmp_path: Path, data: bytes) -> None:
    run_folders.resolved(tmp_path)
    (tmp_path / "console.resolved.json").write_bytes(data)
    found = read_resolved(tmp_path)
    assert found.whole("run.steps") == 50
    assert found.words.headline == ""
    assert bool(found.remarks) == (b"console" not in data)


def test_of_files_that_differ_the_newest_counts(tmp_path: Path) -> None:
    for name, steps, at in (("sft", 10, 1_000), ("learner", 300, 3_000), ("engine", 200, 2_000)):
        file = tmp_path / f"{name}.resolved.json"
        file.write_text(
            json.dumps({"shared": {"run": {"steps": steps}}, name: {"of": name}}), encoding="utf-8"
        )
        os.utime(file, (at, at))
    found = read_resolved(tmp_path)
    assert found.whole("run.steps") == 300
    assert [found.text(f"{name}.of") for name in ("engine", "learner", "sft")] == [
        "engine",
        "learner",
        "sft",
    ]


def test_a_course_of_another_shape_is_said(tmp_path: Path) -> None:
    folder = run_folders.whole(tmp_path / "a")
    (folder / "console/course.jsonl").write_bytes(b'{"event": "began"}\n')
    run = read_run(folder)
    assert run.course.starts == () and "course" in run.remarks[0]
