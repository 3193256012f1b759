"""Runs one statement on a libpq connection and makes a table of what comes back.

It uses libpq's own calls, because no cursor of psycopg bounds its memory. Rows come one at a time
as PostgreSQL's own text. A row that grows beyond `ROW_BYTES` while it arrives is given up: libpq
itself has no limit and could collect a gigabyte. If the server sends faster than libpq reads, more
bytes arrive than were seen waiting, so a complete row is measured again.

Invariants
- Exactly one statement is sent: the extended protocol refuses a second one.
- When `run_statement` returns, the connection waits for the next command. When it raises, the
  connection is of no more use.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import psycopg
from psycopg import pq

from toolsvc.sandbox.jailed.drivers.table import Table
from toolsvc.tools.sql.types import SqlAnswer
from toolwright.types import ToolErrorKind

ROW_BYTES = 32 * 1024 * 1024

CANCELLED = "57014"
OUT_OF_MEMORY = "53200"
USER_RAISED = "P0001"
_RAISED = "exec_stmt_raise"
"""Function in the server's source that runs RAISE of PL/pgSQL."""
_SHUTDOWN = "57P0"
"""Prefix of SQLSTATEs: the server is ending the connection."""
_STATUS = pq.ExecStatus


class Completed(NamedTuple):
    """`failure`: the SQLSTATE of an error, "" without an error."""

    answer: SqlAnswer
    failure: str = ""


class UnusableConnection(Exception):
    """The connection broke, or cannot be used any more. `state`: the server's SQLSTATE, "" without
    one."""

    def __init__(self, why: str, state: str = "") -> None:
        super().__init__(why)
        self.state = state


class TooLarge(Exception):
    """A row above ROW_BYTES."""


async def run_statement(
    connection: pq.abc.PGconn,
    sql: str,
    make_table: Callable[[list[str]], Table],
    enough: Callable[[], Awaitable[None]],
) -> Completed:
    """`enough` is awaited once no more rows are wanted; it may cancel the statement, which then
    counts as complete. Raises UnusableConnection if the connection broke, TooLarge for a row above
    ROW_BYTES."""
    table: Table | None = None
    full = False
    completed: Completed | None = None
    try:
        connection.send_query_params(sql.encode("utf-8", "replace"), None)
        connection.set_single_row_mode()
        await _flush(connection)
        while (result := await _next_result(connection)) is not None:
            status = result.status
            if status in (_STATUS.SINGLE_TUPLE, _STATUS.TUPLES_OK):
                if table is None:
                    table = make_table([_text(result.fname(i)) for i in range(result.nfields)])
                if status == _STATUS.SINGLE_TUPLE and not full:
                    values = [result.get_value(0, i) for i in range(result.nfields)]
                    if sum(len(value or b"") for value in values) > ROW_BYTES:
                        raise TooLarge
                    full = not table.add([_value(value) for value in values])
                    if full:
                        await enough()
            elif status == _STATUS.COMMAND_OK:
                completed = Completed(SqlAnswer(text=_text(result.command_status)))
            elif status == _STATUS.FATAL_ERROR:
                state = _field(result, pq.DiagnosticField.SQLSTATE)
                if _field(result, pq.DiagnosticField.SOURCE_FUNCTION) == _RAISED:
                    state = USER_RAISED  # A policy's function may name any code.
                if connection.status == pq.ConnStatus.BAD or state.startswith(_SHUTDOWN):
                    raise UnusableConnection(_text(result.error_message), state)
                if not (full and state == CANCELLED):
                    completed = Completed(_failure(result, state), state)
            else:  # COPY, which takes the connection over
                raise UnusableConnection(f"the statement put the connection into state {status}")
            result.clear()
    except psycopg.OperationalError as error:
        raise UnusableConnection(str(error)) from error
    if completed is None and table is not None:
        completed = Completed(SqlAnswer(text=table.text(), cut=table.cut))
    if completed is None:
        raise UnusableConnection("the server gave no result")
    return completed


async def _flush(connection: pq.abc.PGconn) -> None:
    while connection.flush():
        # A server that does not read yet may have something to say first.
        await _ready(connection.socket, writing=True)
        connection.consume_input()


async def _next_result(connection: pq.abc.PGconn) -> pq.abc.PGresult | None:
    arrived = 0
    while connection.is_busy():
        await _ready(connection.socket)
        arrived += _waiting_bytes(connection.socket)
        if arrived > ROW_BYTES:
            raise TooLarge
        connection.consume_input()
    return connection.get_result()


async def _ready(descriptor: int, *, writing: bool = False) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, wake)
    if writing:
        loop.add_writer(descriptor, wake)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
        if writing:
            loop.remove_writer(descriptor)


def _waiting_bytes(descriptor: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))
    return int(count)


def _failure(result: pq.abc.PGresult, state: str) -> SqlAnswer:
    fields = pq.DiagnosticField
    lines = [f"Error: {_field(result, fields.MESSAGE_PRIMARY)}"]
    for name, field in (("Detail", fields.MESSAGE_DETAIL), ("Hint", fields.MESSAGE_HINT)):
        text = _field(result, field)
        if text:
            lines.append(f"{name}: {text}")
    return SqlAnswer(text="\n".join(lines), kind=_KINDS.get(state, ToolErrorKind.EXCEPTION))


_KINDS = {CANCELLED: ToolErrorKind.TIMEOUT, OUT_OF_MEMORY: ToolErrorKind.OUT_OF_MEMORY}


def _field(result: pq.abc.PGresult, field: pq.DiagnosticField) -> str:
    return _text(result.error_field(field))


def _value(value: bytes | None) -> str:
    return "NULL" if value is None else value.decode("utf-8", "replace")


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace").strip("\n")
