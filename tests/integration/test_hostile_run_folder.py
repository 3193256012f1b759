"""Files of a stranger: inspect, replay, analyze, trace, the viewer and the memory each report it in
one sentence, in bounded time."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from console.web.runs import Run, find_runs, open_runs
from engine.cli import app as engine_app
from engine.errors import StartupError
from engine.offline.inspect.replay import replay
from memory.cli import app as memory_app
from memory.store.sqlite import SqliteLog
from tests.support.recorded_runs import Recorded
from toolwright.common.v1 import trajectory_pb2 as pb

pytestmark = pytest.mark.quick
HUGE = int("9" * 400)
SECONDS = 20.0
FOREVER = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
Attack = Callable[[Path], None]


def statements(*lines: str, checked: bool = True) -> Attack:
    def attack(file: Path) -> None:
        db = sqlite3.connect(file, isolation_level=None)
        db.execute("PRAGMA journal_mode=DELETE")
        if not checked:
            db.execute("PRAGMA writable_schema=ON")
        for line in lines:
            db.execute(line)
        db.close()

    return attack


def a_view_for(table: str, columns: str) -> Attack:
    return statements(
        f"DROP TABLE {table}",
        f"CREATE VIEW {table} ({columns}) AS SELECT x, x, x, x FROM ({FOREVER})",
    )


def without_types(file: Path) -> None:
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("PRAGMA journal_mode=DELETE")
    db.execute("CREATE TABLE other AS SELECT sequence, number, attempt, trajectory FROM members")
    db.execute("DROP TABLE members")
    db.execute("CREATE TABLE members (sequence, number, attempt, trajectory)")
    db.execute("INSERT INTO members SELECT * FROM other")
    db.close()


def a_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def a_fifo_beside(file: Path) -> None:
    os.mkfifo(f"{file}-wal")


def of_trajectory(change: Callable[[pb.Trajectory], None]) -> Attack:
    def attack(file: Path) -> None:
        db = sqlite3.connect(file, isolation_level=None)
        (data,) = db.execute("SELECT trajectory FROM members").fetchone()
        message = pb.Trajectory.FromString(data)
        change(message)
        db.execute("UPDATE members SET trajectory = ?", (message.SerializeToString(),))
        db.close()

    return attack


def purpose_0(message: pb.Trajectory) -> None:
    message.task.purpose = pb.PURPOSE_UNSPECIFIED


def author_0(message: pb.Trajectory) -> None:
    message.sequences[0].segments[0].author = pb.AUTHOR_UNSPECIFIED


def odd_bytes(message: pb.Trajectory) -> None:
    message.sequences[0].segments[0].token_ids = b"\x01\x02\x03"


ATTACKS: dict[str, Attack] = {
    "a view that never ends": a_view_for("members", "sequence, number, attempt, trajectory"),
    "facts as a view": statements(
        "DROP TABLE facts", "CREATE VIEW facts AS SELECT 'owner' AS name, 'x' AS value"
    ),
    "a trigger": statements(
        "CREATE TRIGGER t AFTER INSERT ON facts BEGIN DELETE FROM groups; END"
    ),
    "a computed column": statements(
        "DROP TABLE skipped",
        "CREATE TABLE skipped (position INTEGER, reason TEXT AS (hex(zeroblob(900000000))))",
    ),
    "columns without types": without_types,
    "a FIFO": a_fifo,
    "a FIFO beside it": a_fifo_beside,
    "a folder": lambda file: (file.unlink(), file.mkdir())[-1],
    "text as a record": statements("UPDATE members SET trajectory = 'text'"),
    "NULL as a record": statements(
        "UPDATE sqlite_master SET sql = replace(sql, 'BLOB NOT NULL', 'BLOB')"
        " WHERE name = 'members'",
        "PRAGMA schema_version=99", checked=False,
    ),
    "an unknown fate": statements("UPDATE groups SET dropped = 77"),
    "a number as text": statements("UPDATE groups SET members = 'many'"),
    "400 digits": statements(f"INSERT OR REPLACE INTO facts VALUES ('durable', '{HUGE}')"),
    "purpose 0": of_trajectory(purpose_0),
    "author 0": of_trajectory(author_0),
    "half a token": of_trajectory(odd_bytes),
}  # fmt: skip


def recorded(folder: Path) -> Recorded:
    run = Recorded(folder)
    run.journal([run.trajectory("g0-0")])
    return run


def attacked(tmp_path: Path, attack: str) -> Path:
    run = recorded(tmp_path / "runs" / "bad").folder
    ATTACKS[attack](run / "journal.sqlite")
    if attack == "NULL as a record":
        statements("UPDATE members SET trajectory = NULL")(run / "journal.sqlite")
    return run


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_engines_commands_report_one_sentence(tmp_path: Path, attack: str) -> None:
    run = attacked(tmp_path, attack)
    reports = 0
    for words in (["inspect", "RUN"], ["inspect", "RUN", "g0-0"], ["analyze", "RUN"],
                  ["trace", "RUN", "--output", str(tmp_path / "out")]):  # fmt: skip
        began = time.monotonic()
        done = CliRunner().invoke(engine_app, [word.replace("RUN", str(run)) for word in words])
        assert time.monotonic() - began < SECONDS
        assert done.exception is None or isinstance(done.exception, SystemExit), words
        assert done.exit_code in (0, 1)
        if done.exit_code:
            reports += 1
            (line,) = done.stderr.splitlines()
            assert line.startswith("engine: ") and "journal" in line, line
    with pytest.raises(StartupError) as failure:
        asyncio.run(replay(run, {}, run))
    assert "\n" not in str(failure.value)
    assert reports, "a damaged journal is reported by one of them at least"


def whole(run: Run) -> None:
    for _ in range(20):
        run.refresh()
        if run.whole:
            return
    raise AssertionError("the index did not come")


BELOW_THE_TABLES = (
    "a computed column",
    "a number as text", "400 digits", "purpose 0", "author 0", "half a token", "an unknown fate",
)  # fmt: skip
"""What the viewer's index does not read, or reads as an unknown value."""


@pytest.mark.parametrize("attack", [name for name in ATTACKS if name not in BELOW_THE_TABLES])
def test_the_viewer_remarks_on_it_and_shows_the_others(tmp_path: Path, attack: str) -> None:
    attacked(tmp_path, attack)
    recorded(tmp_path / "runs" / "good")
    runs = {run.name: run for run in open_runs(find_runs([tmp_path / "runs"]), tmp_path)}
    for run in runs.values():
        began = time.monotonic()
        whole(run)
        assert time.monotonic() - began < SECONDS
    assert runs["good"].remarks == ()
    (remark,) = runs["bad"].remarks
    assert "journal.sqlite" in remark


LINES: dict[str, dict[str, object]] = {
    "learner.jsonl": {"step": HUGE, "reward": HUGE},
    "evaluations.jsonl": {"suite": "s", "step": 1, "reward": HUGE, "n": HUGE},
    "samples.jsonl": {"suite": "s", "lineage": "ab", "step": HUGE, "index": HUGE, "reward": 1,
                      "segments": [{"author": "model", "text": "x"}], "timings": {"wall_s": HUGE}},
    "evaluations/s@ab.1.jsonl": {"suite": "s", "version": f"ab.{HUGE}", "index": HUGE,
                                 "task_id": "e", "reward": HUGE, "turns": HUGE, "tokens": HUGE,
                                 "calls": HUGE, "seconds": HUGE, "stop_reason": "answered"},
    "engine.jsonl": {"timestamp": HUGE, "event": "published", "version": HUGE, "step": HUGE,
                     "seconds": HUGE},
    "engine.resolved.json": {"shared": {"run": {"steps": HUGE, "group_size": HUGE}}},
}  # fmt: skip


@pytest.mark.parametrize("file", LINES)
def test_numbers_of_400_digits_end_no_reader(tmp_path: Path, file: str) -> None:
    from console.course.stopping import state

    run = recorded(tmp_path / "runs" / "bad").folder
    (run / file).parent.mkdir(exist_ok=True)
    (run / file).write_text(json.dumps(LINES[file]) + "\n", encoding="utf-8")
    (shown,) = open_runs(find_runs([tmp_path / "runs"]), tmp_path)
    whole(shown)
    assert state(run).word == "unknown"


@pytest.mark.parametrize(
    "file", ["learner.jsonl", "samples.jsonl", "engine.resolved.json", "console/course.jsonl"]
)
def test_a_fifo_in_the_folder_holds_nobody(tmp_path: Path, file: str) -> None:
    from console.course.stopping import state
    from console.errors import ConsoleError

    run = recorded(tmp_path / "runs" / "bad").folder
    (run / file).parent.mkdir(exist_ok=True)
    os.mkfifo(run / file)
    (shown,) = open_runs(find_runs([tmp_path / "runs"]), tmp_path)
    whole(shown)
    try:
        state(run)
    except ConsoleError as error:
        assert file.rpartition("/")[2] in str(error)


# --- The memory


def memory(folder: Path) -> Path:
    file = folder / "memory.sqlite"
    SqliteLog(file, embedder="words").close()
    return file


MEMORIES: dict[str, Attack] = {
    "meta as a view": statements(
        "DROP TABLE meta",
        f"CREATE VIEW meta AS SELECT 'embedder' AS key, x AS value FROM ({FOREVER})",
    ),
    "changes as a view": a_view_for("changes", "version, name, data, more"),
    "a trigger": statements(
        "CREATE TRIGGER t AFTER INSERT ON changes BEGIN DELETE FROM changes; END"
    ),
    "columns without types": statements(
        "DROP TABLE changes", "CREATE TABLE changes (version, name, data)",
        "INSERT INTO changes VALUES (1, 'a', NULL)",
    ),
    "NULL as an embedder": statements(
        "DROP TABLE meta", "CREATE TABLE meta (key TEXT, value TEXT)",
        "INSERT INTO meta VALUES ('embedder', NULL)",
    ),
    "text as a change": statements(
        "DROP TABLE changes", "CREATE TABLE changes (version INTEGER, name TEXT, data BLOB)",
        "INSERT INTO changes VALUES (1, 'a', 'text')",
    ),
    "a FIFO": a_fifo,
    "a FIFO beside it": a_fifo_beside,
}  # fmt: skip


@pytest.mark.parametrize("attack", MEMORIES)
def test_the_memory_reports_one_sentence(tmp_path: Path, attack: str) -> None:
    file = memory(tmp_path)
    MEMORIES[attack](file)
    for command in ("list", "report"):
        done = CliRunner().invoke(memory_app, [command, str(file)])
        assert done.exit_code == 1, (done.output, done.exception)
        (line,) = done.stderr.splitlines()
        assert line.startswith("memory: ") and str(file) in line


def test_what_our_programs_wrote_is_read(tmp_path: Path) -> None:
    run = recorded(tmp_path / "runs" / "good").folder
    for words in (["inspect", str(run)], ["inspect", str(run), "g0-0"], ["analyze", str(run)]):
        assert CliRunner().invoke(engine_app, words).exit_code == 0
    assert CliRunner().invoke(memory_app, ["list", str(memory(tmp_path))]).exit_code == 0
