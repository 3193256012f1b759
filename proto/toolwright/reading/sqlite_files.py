"""SQLite files that may be hostile, read without running anything of theirs.

A view, a virtual table or a generated column computes at every read, a trigger at every write. A
column takes values of any type, whatever its declaration says.

Invariants
- A FIFO, a device or a folder is refused before it is opened, also beside the file.
- `check_tables` refuses all but plain tables with the expected columns.
- `typed_rows` refuses a value of another type than expected.
- Each refusal is an sqlite3.Error, as SQLite's own, with one sentence.
"""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from enum import EnumType
from functools import cache
from pathlib import Path
from typing import Any

_BESIDE = ("", "-wal", "-shm", "-journal")
REAL = float | int


def check_regular(file: Path) -> None:
    """Raises sqlite3.OperationalError if the file, or one of SQLite's beside it, is not regular.
    A file that is missing is not judged."""
    for ending in _BESIDE:
        path = Path(f"{file}{ending}")
        try:
            mode = path.stat().st_mode
        except OSError:
            continue
        if not stat.S_ISREG(mode):
            raise sqlite3.OperationalError(f"{path} is not a regular file")


def open_read_only(file: Path, check: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """A connection for a reader, also while another process writes. check: raises an error for a
    file of the wrong kind; the connection is closed then. Raises sqlite3.Error."""
    check_regular(file)
    db = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        check(db)
    except BaseException:
        db.close()
        raise
    return db


def check_tables(db: sqlite3.Connection, tables: str) -> None:
    """Raises sqlite3.DatabaseError if the file has a view or a trigger, or lacks a plain table or a
    column. tables: CREATE TABLE statements."""
    db.execute("PRAGMA trusted_schema=OFF")
    odd = db.execute("SELECT type, name FROM sqlite_master WHERE type IN ('view', 'trigger')")
    if (found := odd.fetchone()) is not None:
        raise sqlite3.DatabaseError(f"it has a {found[0]}, {str(found[1])[:100]!r}")
    for table, columns in _columns(tables).items():
        place = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
        ).fetchone()
        if place is None or not place[0]:
            raise sqlite3.DatabaseError(f"it has no plain table {table}")
        there = _declared(db, table)
        for name, declared in columns.items():
            if there.get(name) != declared:
                raise sqlite3.DatabaseError(f"column {name} of table {table} is not {declared[0]}")


def typed_rows(found: Iterable[Any], *kinds: Any) -> Iterator[tuple[Any, ...]]:
    """The rows, each value of its kind: a type, a union of types, or an IntEnum, whose members the
    numbers become. Raises sqlite3.DatabaseError for any other value."""
    for row in found:
        yield tuple(_of_kind(value, kind) for value, kind in zip(row, kinds, strict=True))


def _of_kind(value: Any, kind: Any) -> Any:
    if isinstance(kind, EnumType):
        try:
            return kind(value)
        except ValueError:
            raise sqlite3.DatabaseError(f"a row holds {value!r:.60} as {kind.__name__}") from None
    if not isinstance(value, kind):
        wanted = getattr(kind, "__name__", str(kind))
        raise sqlite3.DatabaseError(
            f"a row holds a value of type {type(value).__name__} in place of {wanted}"
        )
    return value


@cache
def _columns(tables: str) -> dict[str, dict[str, tuple[str, int]]]:
    db = sqlite3.connect(":memory:")
    try:
        db.executescript(tables)
        names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        return {name: _declared(db, name) for (name,) in db.execute(names).fetchall()}
    finally:
        db.close()


def _declared(db: sqlite3.Connection, table: str) -> dict[str, tuple[str, int]]:
    """Type and hidden kind (0 = plain) of each column."""
    found = db.execute("SELECT name, type, hidden FROM pragma_table_xinfo(?)", (table,))
    return {name: (declared, hidden) for name, declared, hidden in found}
