"""The sql tool on SQLite, in real sandboxes."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from tests.support.sql_session import ask, fail
from tests.support.trajectory import Trajectory, said
from tests.support.waiting import passes, until
from toolsvc.errors import Reason, Refused
from toolsvc.host.host import Host
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.tools.sql.sql_tool import SqlOptions, SqlTool
from toolwright.types import ToolErrorKind

SMALL = SandboxConfig(shards=1, ready=1, memory_bytes=192 * MIB)
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"
UNSTOPPABLE = "SELECT instr(hex(zeroblob(8000000)), hex(zeroblob(4000000)) || '1')"
"""Half an hour in one function, which looks at nothing meanwhile."""


pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("databases")
    make_world(folder)
    (folder / "empty.db").touch()
    (folder / "broken.sqlite").write_bytes(b"no database" * 1000)
    return folder


def make_world(folder: Path) -> Path:
    """As a session finds it under the name `world`."""
    (folder / "world").mkdir()
    path = folder / "world" / "world.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE city (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO city (name) VALUES (?)", [(f"c{i}",) for i in range(9)])
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(word)")
        connection.execute("INSERT INTO words VALUES ('hello')")
        connection.commit()
    return path


@contextlib.asynccontextmanager
async def serving(sandbox: SandboxConfig = SMALL, **options: Any) -> AsyncIterator[Host]:
    async with Host([SqlTool(SqlOptions.model_validate(options), sandbox)]) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader(databases: Path) -> AsyncIterator[Host]:
    async with serving(databases=databases) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def writer(databases: Path) -> AsyncIterator[Host]:
    async with serving(databases=databases, writable=True) as running:
        yield running


def trajectory(host: Host, database: Any = "world") -> Trajectory:
    return Trajectory(host, "sql", {"database": database})


async def test_questions_and_errors(reader: Host) -> None:
    session = trajectory(reader)
    text = await ask(session, "SELECT *, NULL AS n FROM city LIMIT 2", turns_left=1)
    assert text == "id | name | n\n1 | c0 | NULL\n2 | c1 | NULL\n(2 rows)\n1 turn left."
    assert "hello" in await ask(session, "SELECT * FROM words WHERE words MATCH 'hello'")
    for pragma in ("PRAGMA table_info(city)", "SELECT * FROM pragma_table_info('city')"):
        assert "1 | name | TEXT" in await ask(session, pragma)
    kind, text = await fail(session, "SELECT colour FROM city", turns_left=0)
    assert kind is ToolErrorKind.EXCEPTION
    assert text == "Error: no such column: colour\nNo turns left: give your <solution> now."
    assert "x'00ff' | a\\nb" in await ask(session, "SELECT x'00ff', 'a' || char(10) || 'b'")


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("INSERT INTO city VALUES (0, '')", "this database is read-only"),
        ("DELETE FROM city RETURNING id", "this database is read-only"),
        ("CREATE TEMP TABLE t (a)", "this database is read-only"),
        ("PRAGMA query_only = OFF", "PRAGMA query_only is not allowed"),
        ("PRAGMA writable_schema = 1", "PRAGMA writable_schema is not allowed"),
        ("PRAGMA hard_heap_limit = 1", "PRAGMA hard_heap_limit is not allowed"),
        ("ATTACH ':memory:' AS x", "ATTACH is not allowed"),
        ("SELECT load_extension('x')", "load_extension is not allowed"),
        ("VACUUM INTO '/tmp/x'", "VACUUM"),
        ("BEGIN", "transactions are not allowed"),
        ("SAVEPOINT x", "savepoints are not allowed"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("SELECT randomblob(100000000)", "too big"),
        ("SELECT hex(zeroblob(16000000))", "too big"),
    ],
)
async def test_a_reader_cannot(reader: Host, sql: str, says: str) -> None:
    session = trajectory(reader)
    kind, text = await fail(session, sql)
    assert kind is ToolErrorKind.EXCEPTION
    assert says in text
    assert "9\n" in await ask(session, "SELECT count(*) FROM city")


async def test_changes_live_in_their_session_alone(writer: Host, databases: Path) -> None:
    before = (databases / "world" / "world.sqlite").read_bytes()
    one, other = trajectory(writer), trajectory(writer)
    assert "2 rows changed." in await ask(one, "DELETE FROM city WHERE id < 3")
    assert "Done." in await ask(one, "CREATE TABLE mine AS SELECT * FROM city")
    assert "UNIQUE" in (await fail(one, "INSERT INTO city VALUES (1, ''), (9, '')"))[1]
    assert "7\n" in await ask(one, "SELECT count(*) FROM city")
    assert "9\n" in await ask(other, "SELECT count(*) FROM city")
    for sql in ("COMMIT", "ROLLBACK", "PRAGMA writable_schema = 1", "ATTACH 'x' AS x"):
        assert "not allowed" in (await fail(one, sql))[1]
    assert "7\n" in await ask(one, "SELECT count(*) FROM mine")
    assert (databases / "world" / "world.sqlite").read_bytes() == before


@pytest.mark.parametrize("writable", [False, True])
async def test_the_limit_stops_a_statement_and_keeps_the_state(
    reader: Host, writer: Host, writable: bool
) -> None:
    session = trajectory(writer if writable else reader)
    if writable:
        await ask(session, "DELETE FROM city WHERE id < 3")
    kind, text = await fail(session, ENDLESS, run_limit=0.3)
    assert kind is ToolErrorKind.TIMEOUT
    assert text.startswith("Error: stopped after 0.3 s\n")
    if writable:
        sql = f"INSERT INTO city (name) SELECT x FROM ({ENDLESS.replace('max(x)', 'x')})"
        assert (await fail(session, sql, run_limit=0.3))[0] is ToolErrorKind.TIMEOUT
    expected = "7\n" if writable else "9\n"
    assert expected in await ask(session, "SELECT count(*) FROM city")


async def test_a_statement_that_cannot_be_interrupted_is_killed(reader: Host, writer: Host) -> None:
    """A reader gets a fresh copy; a writer is told that its changes are lost."""
    session = trajectory(reader)
    assert (await fail(session, UNSTOPPABLE, run_limit=0.2))[0] is ToolErrorKind.TIMEOUT
    assert "9\n" in await ask(session, "SELECT count(*) FROM city")
    session = trajectory(writer)
    result = await session.act(f"<sql>{UNSTOPPABLE}</sql>", run_limit=0.2)
    assert result.error.session_lost
    assert "its changes are lost" in said(result)
    more = await session.act("<sql>SELECT 1</sql>")
    assert (more.error.kind, more.error.session_lost) == (ToolErrorKind.CRASHED, True)


async def test_cancel(reader: Host) -> None:
    session = trajectory(reader)
    await ask(session, "SELECT 1")
    call = asyncio.create_task(session.act(f"<sql>{ENDLESS}</sql>"))
    await until(session.cancel, "the call has begun")
    assert (await call).error.kind is ToolErrorKind.CANCELLED
    assert "9\n" in await ask(session, "SELECT count(*) FROM city")


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 100)"
        " SELECT count(*) FROM (SELECT DISTINCT x || hex(zeroblob(7000000)) FROM c)",
        "CREATE TABLE big AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
        " SELECT zeroblob(1000000) AS z FROM c",
        "SELECT " + ", ".join(["hex(zeroblob(7000000))"] * 60),
    ],
)
async def test_memory_is_bounded_and_the_state_kept(writer: Host, sql: str) -> None:
    session = trajectory(writer)
    await ask(session, "DELETE FROM city WHERE id < 3")
    kind, text = await fail(session, sql)
    assert kind is ToolErrorKind.OUT_OF_MEMORY
    assert text.startswith("Error: out of memory\n")
    assert "7\n" in await ask(session, "SELECT count(*) FROM city")


async def test_the_solution_ends_the_trajectory(reader: Host, databases: Path) -> None:
    result = await trajectory(reader).act("<solution>SELECT 1</solution>")
    assert (result.done, result.valid, said(result)) == (True, True, "")
    async with serving(databases=databases, run_solution=True) as running:
        result = await trajectory(running).act("so: <solution>SELECT 1 AS one</solution>")
        assert (result.done, said(result)) == (True, "one\n1\n(1 row)")


@pytest.mark.parametrize("name", ["none", "../world", "..", None, 7, "broken"])
async def test_a_session_needs_a_database_that_can_be_read(reader: Host, name: Any) -> None:
    with pytest.raises(Refused) as failure:
        await ask(trajectory(reader, name), "SELECT 1")
    assert failure.value.reason is Reason.INVALID_REQUEST


async def test_an_empty_file_is_an_empty_database(reader: Host) -> None:
    assert "(0 rows)" in await ask(trajectory(reader, "empty"), "SELECT * FROM sqlite_master")


async def test_a_single_file_is_everybodys_database(databases: Path) -> None:
    async with serving(databases=databases / "world" / "world.sqlite") as running:
        session = Trajectory(running, "sql")
        assert "9\n" in await ask(session, "SELECT count(*) FROM city")


async def test_a_database_that_changed_is_read_again(tmp_path: Path) -> None:
    path = make_world(tmp_path)
    async with serving(databases=tmp_path) as running:
        assert "9\n" in await ask(trajectory(running), "SELECT count(*) FROM city")
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("DELETE FROM city WHERE id = 1")
            connection.commit()
            # Still in the write-ahead log, which counts.
            assert path.with_name("world.sqlite-wal").stat().st_size
            assert "8\n" in await ask(trajectory(running), "SELECT count(*) FROM city")


@pytest.mark.parametrize("writable", [False, True])
async def test_a_dead_process_loses_a_writer_and_not_a_reader(
    databases: Path, writable: bool
) -> None:
    async with serving(databases=databases, writable=writable) as running:
        session = trajectory(running)
        await ask(session, "SELECT 1")
        call = asyncio.create_task(session.act(f"<sql>{ENDLESS}</sql>"))
        await passes(0.3, "the statement runs")
        for process in psutil.Process().children(recursive=True):
            if process.name().startswith("python"):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        with pytest.raises(Refused) as failure:
            await call
        assert failure.value.reason is (Reason.SESSION_LOST if writable else Reason.BACKEND_DOWN)


async def test_within_all_walls(databases: Path, walls: dict[str, Any]) -> None:
    async with serving(SandboxConfig(shards=1, ready=1, **walls), databases=databases) as running:
        assert running.isolation == walls["isolation"]
        assert "9\n" in await ask(trajectory(running), "SELECT count(*) FROM city")
