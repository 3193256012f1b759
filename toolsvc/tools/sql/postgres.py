"""PostgreSQL: a connection and a transaction for each session, which is always rolled back.

Invariants
- A session's transaction never commits. `commands` refuses every command that could commit, and the
  server's transaction state is checked after each command. Every end of a session (close, lease,
  service stop, a broken connection, a killed service) closes its connection, which rolls back.
- Each statement runs under a savepoint of its own, so an error takes back that statement only.
- At most `connections` are open; a session takes one at its first statement and keeps it.
- No two sessions have the same role at the same time. No role has privileges that it must not have;
  `powers` checks that in each database before its first statement.
- A session that may write is lost with its connection. One that may only read has nothing to
  lose: the next statement gets another connection.
- A statement that ends its own connection gets an error as its answer. If the session may write,
  every later statement gets that error too: the policy gets no new attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from toolsvc.errors import Reason, Refused, StartError, backend_down
from toolsvc.plugin.tool import Cancellation, LiveState
from toolsvc.sandbox.jailed.drivers.table import Table
from toolsvc.tools.sql import powers
from toolsvc.tools.sql.commands import objection
from toolsvc.tools.sql.statement import ROW_BYTES, TooLarge, UnusableConnection, run_statement
from toolsvc.tools.sql.types import SqlAnswer
from toolsvc.types import SessionInfo
from toolwright.rpc.errors import first_line
from toolwright.types import ToolErrorKind

GRACE_SECONDS = 1.0
"""Time for a cancelled statement to end, with the request to the server, in seconds."""
_CONNECT_SECONDS = 10
_AGAIN_SECONDS = 0.05
"""Pause before a retry if all roles are taken, in seconds: the server frees a role soon after its
session."""
_LOOKS = 20
_OLDEST = 140000

Connection = psycopg.AsyncConnection[tuple[object, ...]]


class _Transaction(LiveState):
    """A session's state. `connection`, and the `dsn` of its role: None before the first
    statement."""

    lost: str | None = None

    def __init__(self, backend: PostgresBackend, database: str | None) -> None:
        self._backend = backend
        self.database = database
        self.connection: Connection | None = None
        self.dsn: str | None = None
        self.ended: str | None = None
        """How its own statement ended it; every later statement gets this answer."""
        self.server = ""
        """Start time of the server of the connection."""

    @property
    def ready(self) -> bool:
        return self.connection is not None or self.ended is not None

    async def prepare(self) -> None:
        await self._backend.prepare(self)


class PostgresBackend:
    isolation = ""

    def __init__(
        self,
        dsn: str,
        *,
        key: str,
        writable: bool,
        rows: int,
        output_bytes: int,
        connections: int,
    ) -> None:
        """`dsn`: connection string of the sessions' roles, see `powers`. `key`: metadata key that
        names the database; without it the DSN's database is used."""
        self._free = powers.dsns(dsn)
        self._roles: list[str] = []
        self._examined: set[str] = set()
        """Databases in which the roles were checked: they have no forbidden privilege."""
        self._key = key
        self._writable = writable
        self._rows = rows
        self._output_bytes = output_bytes
        self._places = asyncio.Semaphore(min(connections, len(self._free)))
        self._connected = 0

    async def start(self) -> None:
        try:
            named = [powers.role_of(dsn) for dsn in self._free]
            async with await self._first(None) as connection:
                if connection.info.server_version < _OLDEST:
                    raise StartError("--set sql.dsn: the server is older than PostgreSQL 14")
                self._roles = [role or connection.info.user for role in named]
                faults = await powers.faults(connection, self._roles)
                self._examined.add(connection.info.dbname)
        except psycopg.Error as error:
            raise StartError(f"--set sql.dsn: {first_line(error)}") from error
        if faults:
            raise StartError(
                f"--set sql.dsn: {'; '.join(faults)}; and so could every policy. Give its sessions "
                f"roles that may do little: {powers.MAKE}"
            )

    async def stop(self) -> None:
        """Every session has given its connection back by now."""

    def figures(self) -> dict[str, float]:
        return {"connections": self._connected}

    async def open(self, info: SessionInfo) -> _Transaction:
        database = info.metadata.get(self._key)
        if database is not None and not isinstance(database, str):
            raise Refused(
                Reason.INVALID_REQUEST,
                f"metadata.{self._key} is {database!r}, not the name of a database",
                subject=self._key,
            )
        return _Transaction(self, database)

    async def close(self, session: _Transaction) -> None:
        await self._drop(session)

    async def prepare(self, session: _Transaction) -> None:
        await self._places.acquire()
        try:
            connection = await self._take(session)
            try:
                await self._examine(connection)
                mode = "READ WRITE" if self._writable else "READ ONLY"
                await connection.execute(f"BEGIN {mode}")
                session.server = await _started(connection)
            except BaseException:
                await connection.close()
                self._give_back(session)
                raise
        except psycopg.Error as error:
            self._places.release()
            raise await self._no_connection(session, error) from error
        except BaseException:
            self._places.release()
            raise
        session.connection = connection
        self._connected += 1

    async def _take(self, session: _Transaction) -> Connection:
        """A connection with a role that no other session has, here or elsewhere. Waits a while for
        one: the server needs a moment to end the session before."""
        until = time.monotonic() + _CONNECT_SECONDS
        while True:
            for dsn in random.sample(self._free, len(self._free)):
                if dsn not in self._free:
                    continue  # taken while another was asked for
                self._free.remove(dsn)
                session.dsn = dsn
                try:
                    return await self._connect(dsn, session.database)
                except psycopg.Error as error:
                    self._give_back(session)
                    if not _is_taken(error, dsn) or time.monotonic() > until:
                        raise
                except BaseException:
                    self._give_back(session)
                    raise
            await asyncio.sleep(_AGAIN_SECONDS)

    def _give_back(self, session: _Transaction) -> None:
        if session.dsn is not None:
            self._free.append(session.dsn)
            session.dsn = None

    async def _examine(self, connection: Connection) -> None:
        """Raises Refused if a role has a forbidden privilege in this database."""
        database = connection.info.dbname
        if database in self._examined:
            return
        faults = await powers.faults(connection, self._roles)
        if faults:
            raise Refused(
                Reason.INVALID_REQUEST,
                f"database {database!r} is not served: {'; '.join(faults)}",
                subject=database,
            )
        self._examined.add(database)

    async def run(
        self,
        session: _Transaction,
        sql: str,
        limit: float,
        cancellation: Cancellation,
        *,
        as_json: bool = False,
    ) -> SqlAnswer:
        if as_json:
            raise ValueError("rows as JSON are SQLite's")  # the tool's options refuse it
        if session.ended is not None:
            return _lost(session.ended, ToolErrorKind.CRASHED)
        connection = session.connection
        if connection is None:
            raise RuntimeError("run before prepare")
        why_not = objection(sql, writable=self._writable)
        if why_not is not None:
            return SqlAnswer(text=f"Error: {why_not}", kind=ToolErrorKind.EXCEPTION)
        asked = asyncio.Event()
        cancellation.on_request(asked.set)
        waiting = asyncio.ensure_future(asked.wait())
        work = asyncio.ensure_future(self._under_savepoint(connection, sql, limit))
        try:
            await asyncio.wait((work, waiting), timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            stopped = ToolErrorKind.NONE
            if not work.done():
                stopped = ToolErrorKind.CANCELLED if asked.is_set() else ToolErrorKind.TIMEOUT
                await _cancel(connection)
                await asyncio.wait((work,), timeout=GRACE_SECONDS)
        finally:
            waiting.cancel()
            work.cancel()
            await asyncio.wait((work, waiting))
        try:
            answer = work.result()
        except (asyncio.CancelledError, UnusableConnection, TooLarge, psycopg.Error) as error:
            await self._drop(session)
            if isinstance(error, UnusableConnection) and stopped is ToolErrorKind.NONE:
                return await self._ended_by_itself(session, error)
            return self._broken(session, error, stopped, limit)
        if stopped is ToolErrorKind.CANCELLED and answer.kind is not ToolErrorKind.NONE:
            return SqlAnswer(text="Error: cancelled", kind=stopped)
        if answer.kind is ToolErrorKind.TIMEOUT:
            return SqlAnswer(text=f"Error: stopped after {limit:g} s", kind=answer.kind)
        return answer

    async def _under_savepoint(self, connection: Connection, sql: str, limit: float) -> SqlAnswer:
        # This undoes settings of the previous statement. The server's own timeout is for the case
        # that this process dies during the statement.
        await connection.execute(
            "SAVEPOINT before; "
            f"SET LOCAL statement_timeout = {int((limit + GRACE_SECONDS) * 1000)}; "
            f"SET LOCAL lock_timeout = {max(1, int(limit * 500))}"
        )

        async def enough() -> None:
            # In a transaction that may write, cancelling would take back what the statement did.
            if not self._writable:
                await _cancel(connection)

        answer, failure = await run_statement(connection.pgconn, sql, self._table, enough)
        status = connection.pgconn.transaction_status
        if status not in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            raise UnusableConnection("the statement ended the session's transaction")
        if answer.kind is ToolErrorKind.NONE and self._writable:
            # It may have set a timeout that would end the session while the policy thinks.
            await connection.execute(f"RELEASE SAVEPOINT before; {_NO_TIMEOUTS}")
        else:
            await connection.execute("ROLLBACK TO SAVEPOINT before; RELEASE SAVEPOINT before")
        if failure in _CONTENTION:
            raise backend_down(f"another session is in the way: {answer.text}")
        return answer

    def _table(self, columns: list[str]) -> Table:
        return Table(columns, rows=self._rows, characters=self._output_bytes)

    def _broken(
        self, session: _Transaction, error: BaseException, stopped: ToolErrorKind, limit: float
    ) -> SqlAnswer:
        """The answer if the statement ended its connection. Raises Refused if it did not."""
        if isinstance(error, TooLarge):
            return self._end(session, ToolErrorKind.LIMIT, f"a row exceeds {ROW_BYTES >> 20} MiB")
        if stopped is ToolErrorKind.CANCELLED:
            return self._end(session, stopped, "cancelled")
        if stopped is not ToolErrorKind.NONE:
            return self._end(session, stopped, f"stopped after {limit:g} s")
        raise self._refusal(session, error)

    async def _ended_by_itself(self, session: _Transaction, error: UnusableConnection) -> SqlAnswer:
        """The connection ended while the statement ran. If the server still serves, the statement
        counts as the cause: another cause cannot be known. Raises Refused."""
        if error.state == _CRASH_OF_ANOTHER or not await self._serves_on(session):
            raise self._refusal(session, error)
        return self._end(session, ToolErrorKind.CRASHED, "the statement ended its own connection")

    async def _serves_on(self, session: _Transaction) -> bool:
        for _ in range(_LOOKS):
            with contextlib.suppress(psycopg.Error):
                async with await self._first(session.database) as connection:
                    return await _started(connection) == session.server
            await asyncio.sleep(_AGAIN_SECONDS)  # Its role may not be free yet.
        return False

    def _end(self, session: _Transaction, kind: ToolErrorKind, text: str) -> SqlAnswer:
        if not self._writable:
            return SqlAnswer(text=f"Error: {text}", kind=kind)
        session.ended = text
        return _lost(text, kind)

    def _refusal(self, session: _Transaction, error: BaseException) -> Refused:
        why = f"PostgreSQL ended the connection: {first_line(error)}"
        if not self._writable:
            return backend_down(why)
        session.lost = why
        return Refused(Reason.SESSION_LOST, why)

    async def _no_connection(self, session: _Transaction, error: psycopg.Error) -> Refused:
        """A connection that fails has no error code, so the server is asked for the reason."""
        if session.database is not None:
            with contextlib.suppress(psycopg.Error):
                async with await self._first(None) as connection:
                    names = "SELECT 1 FROM pg_database WHERE datname = %s"
                    if not await (await connection.execute(names, [session.database])).fetchone():
                        return Refused(
                            Reason.INVALID_REQUEST,
                            f"there is no database {session.database!r}",
                            subject=session.database,
                        )
        return backend_down(f"no connection to PostgreSQL: {first_line(error)}")

    async def _first(self, database: str | None) -> Connection:
        """A connection with any role that is free."""
        *others, last = self._free
        for dsn in others:
            try:
                return await self._connect(dsn, database)
            except psycopg.OperationalError as error:
                if not _is_taken(error, dsn):
                    raise
        return await self._connect(last, database)

    async def _connect(self, dsn: str, database: str | None) -> Connection:
        named = {} if database is None else {"dbname": database}
        conninfo = make_conninfo(
            dsn,
            application_name="toolwright",
            client_encoding="utf8",
            connect_timeout=_CONNECT_SECONDS,
            **named,
        )
        # Ours is the only word on when a transaction begins.
        connection = await psycopg.AsyncConnection.connect(
            conninfo, autocommit=True, prepare_threshold=None
        )
        # A policy may think for longer than the server lets others idle; leases end sessions.
        await connection.execute("SET idle_in_transaction_session_timeout = 0")
        with contextlib.suppress(psycopg.errors.InvalidParameterValue):
            # A statement ends soon after its service was killed; not on every system.
            await connection.execute("SET client_connection_check_interval = '2s'")
        return connection

    async def _drop(self, session: _Transaction) -> None:
        connection, session.connection = session.connection, None
        if connection is None:
            return
        try:
            await _cancel(connection)
            await connection.close()
        finally:
            self._give_back(session)
            self._connected -= 1
            self._places.release()


_NO_TIMEOUTS = (
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN "
    "('idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout')"
)

_CONTENTION = ("55P03", "40P01", "40001")
"""SQLSTATEs: lock not available, deadlock, serialization failure. The policy does not read these:
other trajectories cause them."""


_CRASH_OF_ANOTHER = "57P02"
"""SQLSTATE: the server ends all its processes after one of them crashed."""


def _lost(why: str, kind: ToolErrorKind) -> SqlAnswer:
    text = f"Error: {why}; the transaction and its changes are lost"
    return SqlAnswer(text=text, kind=kind, lost=True)


async def _started(connection: Connection) -> str:
    """Start time of the server."""
    cursor = await connection.execute("SELECT pg_postmaster_start_time()::text")
    (told,) = await cursor.fetchone() or ("",)
    return str(told)


def _is_taken(error: psycopg.Error, dsn: str) -> bool:
    """Whether the server refused the role, because another session has it for example. A connection
    that fails has no error code, and its message may be in any language."""
    return f'"{powers.role_of(dsn)}"' in str(error)


async def _cancel(connection: Connection) -> None:
    """Asks the server to cancel the current statement, if one runs."""
    with contextlib.suppress(psycopg.Error):
        await connection.cancel_safe(timeout=GRACE_SECONDS)
