"""The sql tool's text: statements, commands, tables."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsvc.plugin.actions import InvalidAction
from toolsvc.sandbox.jailed.drivers.json_rows import JsonRows
from toolsvc.sandbox.jailed.drivers.table import LONGEST_CELL, Table
from toolsvc.tools.sql.commands import first_word, objection
from toolsvc.tools.sql.sql_tool import SqlOptions, Statement, find_statement


@pytest.mark.parametrize(
    ("action", "found"),
    [
        ("<think>x</think> <sql> SELECT 1 </sql>", Statement("SELECT 1", False)),
        ("<sql>SELECT 1</sql><sql>SELECT 2</sql>", Statement("SELECT 2", False)),
        ("<solution>SELECT 3</solution>", Statement("SELECT 3", True)),
        ("<solution>SELECT 3</solution><sql>SELECT 4</sql>", Statement("SELECT 4", False)),
        ("<sql>SELECT '<sql>'</sql>", Statement("SELECT '<sql>'", False)),
    ],
)
def test_the_last_query_else_the_solution(action: str, found: Statement) -> None:
    assert find_statement(action) == found


LONG_STATEMENT = f"<sql>SELECT '{'x' * 1_000_000}'</sql>"


@pytest.mark.parametrize(
    "action", ["", "SELECT 1", "</sql>", "<sql>\n</sql>", "<sql>\0</sql>", LONG_STATEMENT]
)
def test_an_action_without_a_statement(action: str) -> None:
    with pytest.raises(InvalidAction):
        find_statement(action)


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELECT 1", "select"),
        ("  ;; -- comment\r Commit", "commit"),
        ("-- COMMIT\nSELECT 1", "select"),
        ("/* SELECT /* SELECT */ SELECT */ROLLBACK", "rollback"),
        ("/**/--/*\n/* */END", "end"),
        ("(SELECT 1)", "("),
        ("/* never closed SELECT", ""),
        ("", ""),
        ("\u00a0SELECT", "\u00a0"),  # no blank to PostgreSQL
        ('"select" 1', '"'),
    ],
)
def test_the_first_word_is_found_as_postgresql_finds_it(sql: str, word: str) -> None:
    assert first_word(sql) == word


@given(
    st.lists(st.sampled_from([" ", "\n", ";", "-- SELECT\n", "/* SELECT /* */ */", "--\r"])),
    st.sampled_from(["COMMIT", "rollback", "END", "ABORT", "COPY", "SET", "DO", "CALL", "BEGIN"]),
)
def test_nothing_in_front_hides_a_command(before: list[str], command: str) -> None:
    for writable in (False, True):
        assert objection("".join([*before, command, " x"]), writable=writable)


def test_writing_needs_leave() -> None:
    assert objection("INSERT INTO t VALUES (1)", writable=False)
    assert objection("INSERT INTO t VALUES (1)", writable=True) is None


def table(count: int, cell: str = "x", **limits: int) -> Table:
    made = Table(["head"], **{"rows": 50, "characters": 64 * 1024, **limits})
    for _ in range(count):
        if not made.add([cell]):
            break
    return made


def test_a_long_table_shows_its_first_rows() -> None:
    made = table(100, "y" * 200)
    assert made.cut
    assert made.text().count("y" * 200) == 50
    assert "only the first 50 rows" in made.text()


@given(
    st.lists(st.text(max_size=3 * LONGEST_CELL), max_size=80), st.integers(1, 60), st.integers(1, 9)
)
def test_a_table_is_bounded_and_never_shows_part_of_a_row(
    cells: list[str], rows: int, kib: int
) -> None:
    made = Table(["head"], rows=rows, characters=kib * 1024)
    taken = 0
    for cell in cells:
        taken += 1
        if not made.add([cell]):
            break
    head, *shown, count = made.text().split("\n")
    assert head == "head"
    assert len(made.text()) <= kib * 1024 + 100
    assert len(shown) <= taken
    assert made.cut or len(shown) == len(cells)
    assert str(len(shown)) in count


CELLS = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text()
)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2)))
def test_rows_as_json_are_the_rows(rows: list[list[object]]) -> None:
    made = JsonRows(characters=1_000_000)
    assert all(made.add(tuple(row)) for row in rows)
    assert json.loads(made.text()) == {"rows": rows}
    assert made.text().isascii() and not made.cut


def test_a_blob_is_told_from_its_hexadecimal_text() -> None:
    made = JsonRows(characters=100)
    made.add((b"\x00\xff", "00ff"))
    assert json.loads(made.text()) == {"rows": [[{"blob": "00ff"}, "00ff"]]}


@given(st.lists(st.text(max_size=40)), st.integers(12, 400))
def test_rows_as_json_are_bounded_and_all_or_none(cells: list[str], characters: int) -> None:
    made = JsonRows(characters=characters)
    taken = 0
    for cell in cells:
        taken += 1
        if not made.add([cell]):
            break
    assert len(made.text()) <= characters
    shown = json.loads(made.text())["rows"]
    assert shown == ([] if made.cut else [[cell] for cell in cells])
    assert made.cut or taken == len(cells)


@pytest.mark.parametrize(
    "others", [{"dsn": "postgresql:///x"}, {"databases": Path("x"), "run_solution": True}]
)
def test_solutions_as_json_are_for_sqlite_and_nothing_else_is_shown_of_them(
    others: dict[str, object],
) -> None:
    with pytest.raises(ValueError, match=r"sql\.solution_json"):
        SqlOptions.model_validate({**others, "solution_json": True})
