"""RUN/console/course.jsonl: what is written is what is read, whatever cut it short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from console.errors import RecordBroken
from console.record.course import (
    COURSE,
    Began,
    CourseLog,
    CourseRecord,
    ProcessRecord,
    read_course,
)

ENGINE = ProcessRecord(
    name="engine", what="trajectories", command="engine serve r.toml", state="started", pid=7
)


def _began(pid: int = 1, space: str = "") -> Began:
    return Began(
        at=0.0,
        pid=pid,
        created=1.5,
        argv=["toolwright"],
        recipe="r.toml",
        overrides=["a.b=1"],
        space=space,
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    with CourseLog(tmp_path) as log:
        log.began(_began())
        log.stage("servers", "starting the servers")
        log.process(ENGINE)
        log.memory(100)
        log.memory(50)
        log.ended(0, "done")
    record = read_course(tmp_path)
    assert [start.pid for start in record.starts] == [1]
    assert record.starts[0].at > 0
    assert [stage.text for stage in record.stages] == ["starting the servers"]
    assert record.stages[0].seconds >= 0
    assert record.processes == (ENGINE,)
    assert record.peak_memory == 100
    assert record.ended is not None and (record.ended.status, record.ended.sentence) == (0, "done")


def test_a_second_start_takes_the_end_back_and_the_last_line_of_a_process_counts(
    tmp_path: Path,
) -> None:
    with CourseLog(tmp_path) as log:
        log.began(_began())
        log.process(ENGINE)
        log.ended(130, "stopped")
    with CourseLog(tmp_path) as log:
        log.began(_began(pid=2))
        log.process(ProcessRecord(**{**_fields(ENGINE), "state": "ended", "status": -9}))
    record = read_course(tmp_path)
    assert [start.pid for start in record.starts] == [1, 2]
    assert record.ended is None
    assert [(p.state, p.status) for p in record.processes] == [("ended", -9)]


def test_what_ran_before_a_boot_is_over(tmp_path: Path) -> None:
    with CourseLog(tmp_path) as log:
        log.began(_began(space="first boot"))
        log.process(ENGINE)
        log.began(_began(space="first boot"))
        assert [p.state for p in read_course(tmp_path).processes] == ["started"]
        log.began(_began(space="second boot"))
    assert [p.state for p in read_course(tmp_path).processes] == ["ended"]


def test_a_killed_starts_stage_ends_with_its_last_sign_of_life(tmp_path: Path) -> None:
    path = tmp_path / COURSE
    path.parent.mkdir()
    began = {"event": "began", "pid": 1, "created": 1, "argv": [], "recipe": "", "overrides": []}
    lines = [
        {**began, "at": 10},
        {"event": "stage", "at": 20, "name": "learn", "text": "learning"},
        {"event": "memory", "at": 50, "peak": 1},
        {**began, "at": 1000},
        {"event": "stage", "at": 1010, "name": "learn", "text": "learning"},
        {"event": "ended", "at": 1015, "status": 0, "sentence": ""},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert [stage.seconds for stage in read_course(tmp_path).stages] == [30.0, 5.0]


def test_a_line_that_was_cut_is_left_out_and_removed(tmp_path: Path) -> None:
    with CourseLog(tmp_path) as log:
        log.began(_began())
    path = tmp_path / COURSE
    with path.open("ab") as file:
        file.write(b'{"event": "stage", "na')
    assert read_course(tmp_path).stages == ()
    with CourseLog(tmp_path) as log:
        log.stage("engine", "starting the engine")
    assert [stage.name for stage in read_course(tmp_path).stages] == ["engine"]


@pytest.mark.parametrize("line", ["{}", "[]", "7", '{"event": "stage", "at": "x"}', "no json"])
def test_a_foreign_line_is_one_sentence(tmp_path: Path, line: str) -> None:
    path = tmp_path / COURSE
    path.parent.mkdir()
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(RecordBroken, match=r"course\.jsonl"):
        read_course(tmp_path)


def test_an_event_of_a_later_toolwright_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / COURSE
    path.parent.mkdir()
    path.write_text('{"event": "weather", "at": 1, "sky": "blue"}\n', encoding="utf-8")
    assert read_course(tmp_path) == CourseRecord()


def _fields(record: ProcessRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in ProcessRecord.__slots__}
