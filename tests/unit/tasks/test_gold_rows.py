"""Gold queries: what they give is kept whole, what they must not do is refused, in bounds."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tasks.judging import gold_rows
from tasks.judging.gold_rows import NoGold, gold_of, opened, read_gold, read_rows
from tasks.judging.tables import same_rows

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "a?b#c.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (n, text)")
        rows = [(1, "a"), (2.5, None), (b"\xff", "\u65e5")]
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
        connection.execute("INSERT INTO t VALUES (9e999, CAST(x'ff' AS TEXT))")
        connection.commit()
    return path


def test_rows_come_back_from_an_answer_as_they_were(database: Path) -> None:
    with opened(database) as connection:
        gold = gold_of(connection, "SELECT * FROM t ORDER BY rowid")
    assert gold.ordered
    back = read_gold([gold.answer()])
    assert back == gold
    assert back.rows == [
        [1, "a"],
        [2.5, None],
        [{"blob": "ff"}, "\u65e5"],
        [float("inf"), "\ufffd"],
    ]
    assert same_rows(back.rows, gold.rows, ordered=True)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nothing FROM t",
        "SELECT",
        "",
        "-- a comment",
        "SELECT 1; SELECT 2",
        "SELECT '\0'",
        "SELECT ?",
        "DELETE FROM t",
        "CREATE TABLE u (a)",
        "PRAGMA journal_mode = DELETE",
        "ATTACH ':memory:' AS other",
        "SELECT load_extension('x')",
    ],
)
def test_what_is_no_query_has_no_gold(database: Path, sql: str) -> None:
    before = database.read_bytes()
    with opened(database) as connection, pytest.raises(NoGold, match="fails"):
        gold_of(connection, sql)
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == [database.name]


def test_time_and_size_are_bounded(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gold_rows, "SECONDS", 0.05)
    with opened(database) as connection:
        with pytest.raises(NoGold, match="too long"):
            gold_of(connection, ENDLESS)
        assert gold_of(connection, "SELECT 1").rows == [[1]], "the connection goes on"
    monkeypatch.setattr(gold_rows, "SECONDS", 5.0)
    with opened(database) as connection:
        with pytest.raises(NoGold, match="too many"):
            gold_of(connection, "SELECT 'x' FROM t, t, t, t, t, t, t, t, t")
        with pytest.raises(NoGold, match="too many"):
            gold_of(connection, f"SELECT '{'x' * gold_rows.MOST_CHARACTERS}'")


def test_a_database_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "broken.sqlite"
    path.write_bytes(b"no database" * 1000)
    with opened(path) as connection, pytest.raises(NoGold, match="fails"):
        gold_of(connection, "SELECT 1 FROM sqlite_master")
    with pytest.raises(sqlite3.Error), opened(tmp_path / "none.sqlite"):
        pass
    assert not (tmp_path / "none.sqlite").exists()


@pytest.mark.parametrize(
    "answers", [[], ["a", "b"], ["SELECT 1"], ["[]"], ['{"rows": []}'], ['{"sql": "a"}'], ["7"]]
)
def test_an_answer_of_another_kind_is_refused_with_the_mend(answers: list[str]) -> None:
    with pytest.raises(ValueError, match=r"Gold\.answer"):
        read_gold(answers)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('{"rows": [[1, "a", null]]}', [[1, "a", None]]),
        ('{"rows": []}', []),
        ("Done.", None),
        ("Error: no such column: x", None),
        ("", None),
        ("[[1]]", None),
        ('{"rows": 7}', None),
        ('{"rows": [7]}', None),
        ('{"rows": [[1]]', None),
        ("[" * 100_000, None),
    ],
)
def test_rows_of_a_solution(text: str, rows: Any) -> None:
    assert read_rows(text) == rows
