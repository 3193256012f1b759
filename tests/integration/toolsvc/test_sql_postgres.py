"""The sql tool on a real PostgreSQL."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest

from tests.support.postgres import POLICIES, PostgresServer, postgres
from tests.support.sql_session import ask, fail
from tests.support.trajectory import Trajectory, said
from tests.support.waiting import passes
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.host.host import Host
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.tools.sql.sql_tool import SqlOptions, SqlTool
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc
from toolwright.types import ToolErrorKind

pytestmark = pytest.mark.quick

TABLES = f"""{POLICIES}
CREATE TABLE city (id int PRIMARY KEY, name text);
INSERT INTO city SELECT i, 'city ' || i FROM generate_series(1, 2000) AS i;
GRANT SELECT, INSERT, UPDATE, DELETE ON city TO policy;
CREATE DATABASE other;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres(TABLES) as running:
        yield running


MakeHost = Callable[..., contextlib.AbstractAsyncContextManager[Host]]


@pytest.fixture
def host(server: PostgresServer) -> MakeHost:
    @contextlib.asynccontextmanager
    async def make(**options: Any) -> AsyncIterator[Host]:
        given = SqlOptions.model_validate({"dsn": server.policies(), **options})
        async with Host([SqlTool(given, SandboxConfig())]) as running:
            yield running
        await until(lambda: server.sessions() == 0)

    return make


def trajectory(host: Host, **metadata: Any) -> Trajectory:
    return Trajectory(host, "sql", metadata)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.05)


async def test_rows_commands_and_errors(host: MakeHost) -> None:
    async with host() as running:
        session = trajectory(running)
        text = await ask(session, "SELECT id, name, NULL AS n FROM city ORDER BY id LIMIT 2")
        assert text.startswith("id | name | n\n1 | city 1 | NULL\n2 | city 2 | NULL\n(2 rows)\n")
        assert "Seq Scan" in await ask(session, "EXPLAIN SELECT * FROM city")
        kind, text = await fail(session, "SELECT nothing FROM city")
        assert kind is ToolErrorKind.EXCEPTION
        assert text.startswith('Error: column "nothing" does not exist')
        # The transaction is not poisoned by the error.
        assert "2000" in await ask(session, "SELECT count(*) FROM city")


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("WITH x AS (DELETE FROM city RETURNING *) SELECT * FROM x", "read-only transaction"),
        ("EXPLAIN ANALYZE DELETE FROM city", "read-only transaction"),
        ("SELECT set_config('transaction_read_only', 'off', false)", "read-write mode"),
        ("COMMIT", "COMMIT is not allowed"),
        ("-- SELECT\n /* SELECT /* */ */ ; rollback", "ROLLBACK is not allowed"),
        ("COPY city TO PROGRAM 'cat'", "COPY is not allowed"),
        ("DO $$ BEGIN COMMIT; END $$", "DO is not allowed"),
        ("SELECT 1; SELECT 2", "multiple commands"),
        ("-- nothing", "an empty statement is not allowed"),
    ],
)
async def test_a_reader_cannot(host: MakeHost, server: PostgresServer, sql: str, says: str) -> None:
    async with host() as running:
        session = trajectory(running)
        _, text = await fail(session, sql)
        assert says in text
        assert "2000" in await ask(session, "SELECT count(*) FROM city")
    assert server.ask("SELECT count(*) FROM city") == 2000


async def test_changes_live_in_their_session_and_are_rolled_back(
    host: MakeHost, server: PostgresServer
) -> None:
    async with host(writable=True) as running:
        one, other = trajectory(running), trajectory(running)
        assert await ask(one, "DELETE FROM city WHERE id > 100") == "DELETE 1900\n3 turns left."
        assert "(1 row)" in await ask(one, "INSERT INTO city VALUES (0, 'zero') RETURNING id")
        assert "duplicate key" in (await fail(one, "INSERT INTO city VALUES (1, '')"))[1]
        for word in ("COMMIT", "END", "ROLLBACK", "SAVEPOINT x", "PREPARE TRANSACTION 'x'",
                     "CALL nothing()"):  # fmt: skip
            assert "is not allowed" in (await fail(one, word))[1]
        # Nor may an unprivileged role create a procedure, which could commit.
        body = "BEGIN DELETE FROM city; COMMIT; END"
        assert (await one.act(f"<sql>CREATE PROCEDURE p() AS $$ {body} $$</sql>")).error
        assert "101" in await ask(one, "SELECT count(*) FROM city")
        assert "2000" in await ask(other, "SELECT count(*) FROM city")
        await one.close()
        await until(lambda: server.sessions() == 1)
        assert "2000" in await ask(other, "SELECT count(*) FROM city")
    assert server.ask("SELECT count(*) FROM city") == 2000


async def test_the_limit_stops_a_statement_and_keeps_the_state(host: MakeHost) -> None:
    async with host(writable=True) as running:
        session = trajectory(running)
        await ask(session, "DELETE FROM city WHERE id > 7")
        # A statement cannot lift it.
        await ask(session, "SELECT set_config('statement_timeout', '0', false)")
        kind, text = await fail(session, "SELECT pg_sleep(60)", run_limit=0.3)
        assert kind is ToolErrorKind.TIMEOUT
        assert text.startswith("Error: stopped after 0.3 s")
        assert "7" in await ask(session, "SELECT count(*) FROM city")


async def test_a_huge_row_is_given_up_before_it_fills_the_service(host: MakeHost) -> None:
    async with host() as running:
        session = trajectory(running)
        kind, text = await fail(session, "SELECT repeat('x', 200000000)", run_limit=60.0)
        assert kind is ToolErrorKind.LIMIT
        assert "32 MiB" in text
        assert "2000" in await ask(session, "SELECT count(*) FROM city")


async def test_an_endless_result_costs_what_is_shown_of_it(host: MakeHost) -> None:
    async with host() as running:
        session = trajectory(running)
        text = await ask(session, "SELECT a.name FROM city AS a, city AS b, city AS c, city AS d")
        assert "only the first 50 rows" in text


async def test_the_metadata_names_a_database(host: MakeHost) -> None:
    async with host() as running:
        assert "other" in await ask(
            trajectory(running, database="other"), "SELECT current_database()"
        )
        with pytest.raises(Refused) as failure:
            await ask(trajectory(running, database="none"), "SELECT 1")
        assert failure.value.reason is Reason.INVALID_REQUEST


async def test_connections_are_bounded_and_waiting_is_queueing(host: MakeHost) -> None:
    async with host(connections=1) as running:
        one, other = trajectory(running), trajectory(running)
        await ask(one, "SELECT 1")
        with pytest.raises(Refused) as failure:
            await ask(other, "SELECT 1", queue_limit=0.2)
        assert failure.value.reason is Reason.QUEUE_LIMIT
        await one.close()
        assert "(1 row)" in await ask(other, "SELECT 1")


async def test_another_sessions_lock_is_nothing_for_the_policy(host: MakeHost) -> None:
    async with host(writable=True) as running:
        one, other = trajectory(running), trajectory(running)
        await ask(one, "UPDATE city SET name = '' WHERE id = 1")
        with pytest.raises(Refused) as failure:
            await ask(other, "UPDATE city SET name = '' WHERE id = 1", run_limit=1.0)
        assert failure.value.reason is Reason.BACKEND_DOWN
        assert failure.value.retry_after
        await one.close()
        assert "UPDATE 1" in await ask(other, "UPDATE city SET name = '' WHERE id = 1")


_SLEEPING = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(60)%'"


async def test_a_killed_backend_loses_a_writer_and_not_a_reader(
    host: MakeHost, server: PostgresServer
) -> None:
    for writable in (True, False):
        async with host(writable=writable) as running:
            session = trajectory(running)
            await ask(session, "SELECT 1")
            kill(server)
            for reason in [Reason.SESSION_LOST] * 2 if writable else [Reason.BACKEND_DOWN]:
                with pytest.raises(Refused) as failure:
                    await ask(session, "SELECT 1")
                assert failure.value.reason is reason
            if not writable:
                assert "(1 row)" in await ask(session, "SELECT 1")


async def test_a_statement_that_ends_its_own_connection_is_told(host: MakeHost) -> None:
    """The policy that wrote it gets no other attempt by it."""
    for writable in (True, False):
        async with host(writable=writable) as running:
            session = trajectory(running)
            told = await session.act("<sql>SELECT pg_terminate_backend(pg_backend_pid())</sql>")
            assert told.error.kind is ToolErrorKind.CRASHED
            assert told.error.session_lost == writable
            again = await session.act("<sql>SELECT 1</sql>")
            if writable:
                assert again.error.session_lost
                assert "the statement ended its own connection" in said(again)
            else:
                assert "(1 row)" in said(again)
            assert running.renew("tests", 60, [session.session_id]).lost == ()


@pytest.mark.parametrize("code", ["40001", "40P01", "55P03", "57P01", "57P02", "57014", "53200"])
async def test_a_code_that_a_policy_raises_is_its_own_error(host: MakeHost, code: str) -> None:
    """Not another session's, nor the server's end, by which its call would be asked again."""
    raises = f"BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = '{code}'; END"
    async with host(writable=True) as running:
        session = trajectory(running)
        await ask(
            session, f"CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE plpgsql AS $${raises}$$"
        )
        told = await session.act("<sql>SELECT pg_temp.f()</sql>")
        assert (told.error.kind, told.error.session_lost) == (ToolErrorKind.EXCEPTION, False)
        assert "mine" in said(told)
        assert "(1 row)" in await ask(session, "SELECT 1")


async def test_a_policy_sets_no_limit_for_its_own_thoughts(host: MakeHost) -> None:
    async with host(writable=True) as running:
        session = trajectory(running)
        await ask(session, "DELETE FROM city WHERE name = 'Oslo'")
        limit = "SELECT set_config('idle_in_transaction_session_timeout', '50', false)"
        assert "50" in await ask(session, limit)
        await passes(0.4, "longer than the limit that it set")
        assert "(1 row)" in await ask(session, "SELECT 1")


async def test_a_server_that_dies_under_a_statement_is_a_lost_session(
    host: MakeHost, server: PostgresServer
) -> None:
    async with host(writable=True) as running:
        session = trajectory(running)
        await ask(session, "SELECT 1")
        call = asyncio.create_task(session.act("<sql>SELECT pg_sleep(60)</sql>"))
        await until(lambda: bool(server.ask(_SLEEPING)))
        server.crash()
        with pytest.raises(Refused) as failure:
            await call
        assert failure.value.reason is Reason.SESSION_LOST
        server.start()


def kill(server: PostgresServer) -> None:
    server.ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'toolwright'"
    )


async def test_a_server_that_dies_and_comes_back(host: MakeHost, server: PostgresServer) -> None:
    async with host(writable=True) as running:
        lost, fresh = trajectory(running), trajectory(running)
        await ask(lost, "DELETE FROM city")
        server.crash()
        with pytest.raises(Refused) as failure:
            await ask(lost, "SELECT 1")
        assert failure.value.reason is Reason.SESSION_LOST
        with pytest.raises(Refused) as failure:
            await ask(fresh, "SELECT 1")
        assert failure.value.reason is Reason.BACKEND_DOWN
        server.start()
        assert "2000" in await ask(fresh, "SELECT count(*) FROM city")


OTHERS = "FROM pg_stat_activity WHERE application_name = 'toolwright' AND pid <> pg_backend_pid()"


@pytest.mark.parametrize("writable", [False, True])
async def test_a_session_neither_reads_nor_ends_anothers_statement(
    host: MakeHost, server: PostgresServer, writable: bool
) -> None:
    async with host(writable=writable) as running:
        one, other = trajectory(running), trajectory(running)
        sleeping = asyncio.create_task(ask(one, "SELECT pg_sleep(60), 'a secret'", run_limit=50))
        await until(lambda: bool(server.ask(_SLEEPING)))
        seen = await ask(other, f"SELECT query, state {OTHERS}")
        assert "secret" not in seen
        assert "<insufficient privilege> | NULL\n(1 row)" in seen
        for way in ("pg_cancel_backend(pid)", "pg_terminate_backend(pid)"):
            assert "must" in (await fail(other, f"SELECT {way} {OTHERS}"))[1]
        assert server.ask(_ROLES.format("count(*)")) == 2
        assert server.ask(_ROLES.format("count(DISTINCT usename)")) == 2
        assert not sleeping.done()
        await one.close()
        with pytest.raises(Refused):
            await sleeping


_ROLES = "SELECT {} FROM pg_stat_activity WHERE application_name = 'toolwright'"


async def test_two_services_never_share_a_role(host: MakeHost, server: PostgresServer) -> None:
    """Eight roles: the server keeps the ninth session waiting, whoever holds the others."""
    async with host(connections=8) as one, host(connections=8) as two:
        sessions = [trajectory(running) for running in (one, two) for _ in range(4)]
        await asyncio.gather(*(ask(session, "SELECT 1") for session in sessions))
        assert server.ask(_ROLES.format("count(DISTINCT usename)")) == 8
        last = trajectory(one)
        ninth = asyncio.create_task(ask(last, "SELECT 1", queue_limit=15))
        await asyncio.sleep(0)
        assert not ninth.done()
        await sessions[-1].close()
        assert "(1 row)" in await ninth
        for session in (last, *sessions[:-1]):
            await session.close()


async def test_a_role_with_powers_is_refused_at_the_start(server: PostgresServer) -> None:
    """Each is granted to the last of the roles, and taken back."""
    told = []
    for grant, back, says in (
        ("GRANT pg_read_all_data TO {}", "REVOKE pg_read_all_data FROM {}", "pg_authid"),
        ("GRANT SELECT ON pg_shadow TO {}", "REVOKE SELECT ON pg_shadow FROM {}", "pg_shadow"),
        *(
            (f"GRANT {role} TO {{}}", f"REVOKE {role} FROM {{}}", f"member of {role}")
            for role in ("pg_monitor", "pg_signal_backend", "pg_read_server_files",
                         "pg_execute_server_program", "admin", "policy_1")
        ),
        ("ALTER ROLE {} CONNECTION LIMIT 2", "ALTER ROLE {} CONNECTION LIMIT 1", "would share"),
        ("ALTER ROLE {} SUPERUSER", "ALTER ROLE {} NOSUPERUSER", "SUPERUSER"),
        ("ALTER ROLE {} CREATEROLE", "ALTER ROLE {} NOCREATEROLE", "CREATEROLE"),
        ("ALTER ROLE {} REPLICATION", "ALTER ROLE {} NOREPLICATION", "REPLICATION"),
        ("GRANT EXECUTE ON FUNCTION pg_read_file(text) TO {}",
         "REVOKE EXECUTE ON FUNCTION pg_read_file(text) FROM {}", "pg_read_file"),
        ("ALTER ROLE {} RENAME TO other", "ALTER ROLE other RENAME TO {}", "no role policy_8"),
    ):  # fmt: skip
        server.tell(grant.format("policy_8"))
        tool = SqlTool(SqlOptions.model_validate({"dsn": server.policies()}), SandboxConfig())
        try:
            with pytest.raises(StartError) as failure:
                await tool.start()
        finally:
            server.tell(back.format("policy_8"))
        told.append((says, says in str(failure.value)))
    assert [says for says, said in told if not said] == []


async def test_each_database_is_examined(host: MakeHost, server: PostgresServer) -> None:
    server.tell("CREATE DATABASE leaky")
    server.tell("GRANT SELECT ON pg_authid TO policy_3", "leaky")
    async with host() as running:
        with pytest.raises(Refused, match="policy_3 may read pg_authid") as failure:
            await ask(trajectory(running, database="leaky"), "SELECT 1")
        assert failure.value.reason is Reason.INVALID_REQUEST
        assert "(1 row)" in await ask(trajectory(running, database="other"), "SELECT 1")


def test_a_service_that_is_killed_leaves_no_statement(
    server: PostgresServer, start: Callable[..., Any]
) -> None:
    """kill -9 of the whole service: the server notices, and rolls back."""
    service = start("sql", "--set", f"sql.dsn={server.policies()}", "--set", "sql.writable=true")
    with grpc.insecure_channel(service.address) as channel:
        stub: Any = tool_pb2_grpc.ToolServiceStub(channel)
        stub.OpenSession(pb.OpenSessionRequest(session_id="s", owner="o"), timeout=20)
        fields = {"session_id": "s", "turns_left": 1}
        action = "<sql>DELETE FROM city</sql>"
        answer = stub.CallTool(pb.CallToolRequest(call_id="1", action=action, **fields), timeout=20)
        assert answer.result.observation[0].text == "DELETE 2000\n1 turn left."
        assert answer.result.isolation == ""
        call = pb.CallToolRequest(call_id="2", action="<sql>SELECT pg_sleep(60)</sql>", **fields)
        stub.CallTool.future(call, timeout=20)
        deadline = time.monotonic() + 20
        while not server.ask(_SLEEPING) and time.monotonic() < deadline:
            time.sleep(0.05)
    service.process.kill()
    service.process.wait(20)
    while server.sessions() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert server.sessions() == 0
    assert server.ask("SELECT count(*) FROM city") == 2000
