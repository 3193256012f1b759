"""The log in one SQLite file: the default, for one machine and any number of processes."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from memory.errors import Unusable
from memory.store import PAGE, lost
from toolwright.reading.sqlite_files import check_regular, check_tables, typed_rows

BUSY_S = 30.0
"""Longest wait for another writer's transaction, in seconds; a transaction takes milliseconds."""
_META = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;"
_SCHEMA = f"""
{_META}
CREATE TABLE IF NOT EXISTS changes (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    data BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS snapshots (version INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
"""
_TABLES = {"meta", "changes", "snapshots"}
_BEGUN = "SELECT value FROM meta WHERE key = 'embedder'"


class SqliteLog:
    """Thread-safe; every append is one transaction that is on the disk when it returns."""

    def __init__(self, path: Path, *, embedder: str, read_only: bool = False) -> None:
        """embedder: its name; a memory keeps its first embedder. read_only: the file must exist.
        Raises Unusable."""
        self._path = path
        self._lock = threading.Lock()
        self._read_only = read_only
        try:
            self._db = _read_only(path) if read_only else _written(path, embedder)
            if read_only:
                check_tables(self._db, _SCHEMA)
            begun = next((text for (text,) in typed_rows(self._db.execute(_BEGUN), str)), None)
        except (OSError, sqlite3.Error) as error:
            raise Unusable(f"{path} cannot be used as a memory: {error}") from error
        if begun != embedder:
            self._db.close()
            raise Unusable(
                f"{path} was begun with the embedder {begun!r}, not {embedder!r}: name that one, "
                "or begin another memory"
            )

    def append(self, group: str, data: bytes, after: int) -> tuple[int, bytes] | None:
        with self._lock, self._trouble("took no change"), self._transaction():
            if (found := self._find(group)) is not None:
                return found
            (last,) = self._db.execute("SELECT coalesce(max(version), 0) FROM changes").fetchone()
            if last < after:
                raise lost(str(self._path), int(last), after)
            if last > after:
                return None
            self._db.execute("INSERT INTO changes VALUES (?, ?, ?)", (last + 1, group, data))
            return int(last) + 1, data

    def find(self, group: str) -> tuple[int, bytes] | None:
        with self._lock, self._trouble("cannot be read"):
            return self._find(group)

    def read(self, after: int, most: int = PAGE) -> Sequence[bytes]:
        with self._lock, self._trouble("cannot be read"):
            found = self._db.execute(
                "SELECT data FROM changes WHERE version > ? ORDER BY version LIMIT ?", (after, most)
            ).fetchall()
            return [data for (data,) in typed_rows(found, bytes)]

    def keep(self, version: int, snapshot: bytes) -> None:
        if self._read_only:
            return
        with self._lock, self._trouble("took no snapshot"), self._transaction():
            self._db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?)", (version, snapshot))

    def snapshots(self, most: int) -> Sequence[int]:
        with self._lock, self._trouble("cannot be read"):
            found = self._db.execute(
                "SELECT version FROM snapshots WHERE version <= ? ORDER BY version DESC", (most,)
            ).fetchall()
            return [version for (version,) in typed_rows(found, int)]

    def snapshot(self, version: int) -> bytes | None:
        with self._lock, self._trouble("cannot be read"):
            found = self._db.execute("SELECT data FROM snapshots WHERE version = ?", (version,))
            return next((data for (data,) in typed_rows(found, bytes)), None)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _find(self, group: str) -> tuple[int, bytes] | None:
        found = self._db.execute("SELECT version, data FROM changes WHERE name = ?", (group,))
        return next(((version, data) for version, data in typed_rows(found, int, bytes)), None)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._db.in_transaction:  # a full disk has rolled it back already
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _trouble(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise Unusable(f"{self._path} {what}: {error}") from error


def begun(path: Path) -> str:
    """The first embedder of a memory, "" if there is no memory, or only an unfinished beginning.
    Raises Unusable."""
    if not path.exists():
        return ""
    try:
        with closing(_read_only(path)) as db:
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
            if "meta" in tables:
                check_tables(db, _META)
                for (embedder,) in typed_rows(db.execute(_BEGUN), str):
                    return str(embedder)
    except (OSError, sqlite3.Error) as error:
        raise Unusable(f"{path} is not a memory, or cannot be read: {error}") from error
    if any(name not in _TABLES for name in tables if not name.startswith("sqlite_")):
        raise Unusable(f"{path} is not a memory: it holds tables of another program")
    return ""


def _written(path: Path, embedder: str) -> sqlite3.Connection:
    check_regular(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    _to_wal(db)
    db.execute("PRAGMA synchronous = FULL")
    db.executescript(_SCHEMA)
    check_tables(db, _SCHEMA)
    db.execute("INSERT OR IGNORE INTO meta VALUES ('embedder', ?)", (embedder,))
    return db


def _to_wal(db: sqlite3.Connection) -> None:
    """Several processes may open a new file at once. SQLite's timeout does not cover this change:
    it is refused at once while another process makes it."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _read_only(path: Path) -> sqlite3.Connection:
    """Connection to an existing file. The writers' write-ahead log must be read too, so SQLite
    makes a file beside it, which goes with the last connection. If SQLite cannot make that file and
    it is missing, there is no writer."""
    check_regular(path)
    alone = not Path(f"{path}-wal").exists() and not os.access(path.absolute().parent, os.W_OK)
    where = f"{path.absolute().as_uri()}?{'mode=ro&immutable=1' if alone else 'mode=rw'}"
    db = sqlite3.connect(
        where, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )
    db.execute("PRAGMA query_only = ON")
    return db
