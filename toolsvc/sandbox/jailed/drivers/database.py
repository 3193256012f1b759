"""One session: an SQLite database in memory, a private copy of the one that came with the
first call.

A call is JSON: `{"open": {"writable": bool}}` with the database's bytes in an attached file, or
`{"sql": text, "rows": N}`, to which `"json": true` asks for all rows as JSON. SQLite runs here, in
a confined process of the session's own, and not in the service. One call of `instr` with two long
strings can run for hours without a look at a progress handler, and threads cannot be killed.

Invariants
- A statement takes effect wholly or not at all: each runs in a transaction of its own, which
  an error or an interrupt rolls back.
- The authorizer sees a statement's actions before it runs. It denies actions that leave the
  database (ATTACH, extensions) or end the driver's transaction, and every pragma that is not a
  question. In a read-only session `query_only` prevents writing, and no statement can undo it.
- An interrupt is seen by the progress handler; the database stays as it was.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import socket
import sqlite3
from typing import Any, NamedTuple

from .. import wire
from .channel import answer, calls
from .json_rows import JsonRows
from .table import LONGEST_CELL, Table

_OPERATIONS = 2000
"""Steps of SQLite's machine between two looks at the interrupt; well under a millisecond."""

_ABOUT = {
    *("foreign_key_check", "foreign_key_list", "index_info", "index_list", "index_xinfo"),
    *("integrity_check", "quick_check", "table_info", "table_list", "table_xinfo"),
}
"""Pragmas that ask about the table or index that is their argument."""
_QUESTIONS = {
    *_ABOUT,
    *("collation_list", "compile_options", "data_version", "database_list", "encoding"),
    *("foreign_keys", "freelist_count", "function_list", "page_count", "page_size", "pragma_list"),
    *("schema_version", "user_version"),
}
"""Pragmas that only ask; with an argument some of them would change a setting."""

_NEVER = {
    sqlite3.SQLITE_ATTACH: "ATTACH is not allowed",
    sqlite3.SQLITE_DETACH: "DETACH is not allowed",
    sqlite3.SQLITE_TRANSACTION: "transactions are not allowed: every statement is one of its own",
    sqlite3.SQLITE_SAVEPOINT: "savepoints are not allowed: every statement is a transaction",
}
_FUNCTIONS = frozenset(("load_extension", "fts3_tokenizer", "edit", "readfile", "writefile"))


class Reply(NamedTuple):
    """`status`: of `wire`. `cut`: the text leaves rows out."""

    status: int
    text: str
    cut: bool = False


class Database:
    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._guarding = False
        self._interrupted = False
        self._denied = ""

    def open(self, content: Any, writable: bool) -> None:
        """`content`: the bytes of a database file; none at all for an empty database."""
        # Statements are never kept: one of ours, prepared unguarded, would be there for the
        # policy's use.
        connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
        if len(content):
            connection.deserialize(content)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        # Intermediate results on disk would be the session's own files; in memory they fall
        # under the limit of its address space.
        connection.execute("PRAGMA temp_store = MEMORY")
        if not writable:
            connection.execute("PRAGMA query_only = ON")
        # One row is held whole; a hundred columns of this length still fit.
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 16 * 1024 * 1024)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.text_factory = _text
        connection.set_authorizer(self._authorize)
        connection.set_progress_handler(lambda: self._interrupted, _OPERATIONS)
        self._connection = connection

    def interrupt(self, number: int, frame: object) -> None:
        self._interrupted = True

    def run(self, sql: str, rows: int | None, characters: int) -> Reply:
        """Never raises for anything that `sql` is or does. `rows`: shown of a long table; None =
        all of them as JSON."""
        connection = self._connection
        if connection is None:
            return Reply(wire.EXCEPTION, "no database was opened")
        self._interrupted = False
        self._denied = ""
        try:
            connection.execute("BEGIN")
            try:
                self._guarding = True
                reply = self._answer(connection, sql, rows, characters)
            finally:
                self._guarding = False
            connection.execute("COMMIT")
        except MemoryError:
            reply = Reply(wire.OUT_OF_MEMORY, "Error: out of memory")
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            if self._interrupted:
                reply = Reply(wire.INTERRUPTED, "")
            else:
                reply = Reply(wire.EXCEPTION, f"Error: {self._denied or _plain(error)}")
        self._interrupted = False
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return reply

    def _answer(
        self, connection: sqlite3.Connection, sql: str, rows: int | None, characters: int
    ) -> Reply:
        cursor = connection.execute(sql)
        try:
            if cursor.description is None:
                changed = cursor.rowcount
                if changed < 0:
                    return Reply(wire.OK, "Done.")
                return Reply(wire.OK, f"{changed} row{'' if changed == 1 else 's'} changed.")
            if rows is None:
                found = JsonRows(characters=characters)
                for row in cursor:
                    if not found.add(row):
                        break
                return Reply(wire.OK, found.text(), found.cut)
            columns = [column[0] for column in cursor.description]
            table = Table(columns, rows=rows, characters=characters)
            for row in cursor:
                if not table.add([_cell(value) for value in row]):
                    break
            return Reply(wire.OK, table.text(), table.cut)
        finally:
            cursor.close()

    def _authorize(
        self, action: int, first: str | None, second: str | None, *where: str | None
    ) -> int:
        if not self._guarding:
            return sqlite3.SQLITE_OK
        reason = self._reason(action, first, second)
        if reason is None:
            return sqlite3.SQLITE_OK
        self._denied = self._denied or reason
        return sqlite3.SQLITE_DENY

    def _reason(self, action: int, first: str | None, second: str | None) -> str | None:
        """Why not, or None."""
        if action in _NEVER:
            return _NEVER[action]
        if action == sqlite3.SQLITE_FUNCTION:
            return f"{second} is not allowed" if second in _FUNCTIONS else None
        if action == sqlite3.SQLITE_PRAGMA:
            name = (first or "").lower()
            asks = name in _QUESTIONS and (second is None or name in _ABOUT)
            return None if asks else f"PRAGMA {name} is not allowed"
        return None


def _plain(error: Exception) -> str:
    # Read-only sessions alone raise it: their database is read-only for them, not by its file.
    readonly = "attempt to write a readonly database"
    return "this database is read-only" if str(error) == readonly else str(error)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        shown = value[: LONGEST_CELL // 2].hex()
        return (
            f"x'{shown}'"
            if len(value) <= LONGEST_CELL // 2
            else f"x'{shown}... ({len(value)} bytes)"
        )
    return value if isinstance(value, str) else str(value)


def prepare() -> None:
    """Called once, in the zygote. It makes nothing that sessions share: an open database must not
    be carried over a fork."""
    if not hasattr(sqlite3.Connection, "deserialize"):
        raise SystemExit(
            "SQLite in the sandbox needs Python 3.11 or newer: name one with --sandbox-python"
        )


def serve(state: None, channel: socket.socket) -> None:
    """Answers calls until the host hangs up. Does not return."""
    database = Database()
    signal.signal(signal.SIGINT, database.interrupt)
    for call, attached in calls(channel):
        try:
            reply = _obey(database, json.loads(call.code), attached, call.keep)
        except (ValueError, KeyError, TypeError) as error:
            reply = Reply(wire.EXCEPTION, f"not a request: {error!r}")
        answer(channel, call, reply.status, reply.text.encode("utf-8", "replace"), cut=reply.cut)


def _obey(database: Database, request: Any, attached: int | None, keep: int) -> Reply:
    if "open" in request:
        if attached is None:
            return Reply(wire.EXCEPTION, "a database is opened from an attached file")
        try:
            _open(database, attached, bool(request["open"]["writable"]))
        except MemoryError:
            return Reply(wire.OUT_OF_MEMORY, "it does not fit into the memory of a session")
        except sqlite3.Error as error:
            return Reply(wire.EXCEPTION, str(error))
        return Reply(wire.OK, "")
    rows = None if request.get("json") else int(request["rows"])
    return database.run(str(request["sql"]), rows, keep)


def _open(database: Database, file: int, writable: bool) -> None:
    size = os.fstat(file).st_size
    if not size:
        database.open(b"", writable)
        return
    with mmap.mmap(file, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as content:
        database.open(content, writable)
