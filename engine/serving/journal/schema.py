"""The journal's file: its tables, its lock, and the check of foreign files.

A lock file beside the journal keeps a second engine out. A lock of SQLite for an engine's whole
life would keep readers out too.

Invariants
- One process at a time holds the lock. The kernel frees it however that process ends.
- Either all tables exist or none: they are made in one transaction.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from pathlib import Path

from engine.errors import StartupError
from toolwright.reading import sqlite_files
from toolwright.reading.sqlite_files import check_regular, check_tables

FILE_NAME = "journal.sqlite"
"""The journal's name in a run folder."""
SCHEMA_VERSION = 2
LOCK_SECONDS = 1.0
"""Longest wait for the lock: a process that only checks for a live engine holds it briefly."""
WAL_BYTES = 64 << 20
"""Size to which the write-ahead log shrinks after a large commit."""
CACHE_KIB = 8_192
"""Page cache. It holds the pages of the attempts in flight, so that no page is read again."""
WAL_PAGES = 4_096
"""Length at which the write-ahead log is copied into the file: rarely, because a page that changed
in many commits is then copied once."""

NEW_FOLDER = "choose a new run.folder"
_FORK = "`engine serve RECIPE --fork RUN` opens a new run from its newest weights"

_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE groups (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    position INTEGER NOT NULL,
    id TEXT NOT NULL,
    hash TEXT NOT NULL,
    members INTEGER NOT NULL,
    versions TEXT NOT NULL,
    dropped INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE members (
    sequence INTEGER NOT NULL REFERENCES groups,
    number INTEGER NOT NULL,
    attempt TEXT NOT NULL,
    trajectory BLOB NOT NULL,
    PRIMARY KEY (sequence, number)
) WITHOUT ROWID;
CREATE TABLE skipped (position INTEGER PRIMARY KEY, reason TEXT NOT NULL);
CREATE TABLE logs (
    log INTEGER PRIMARY KEY,
    trajectory TEXT NOT NULL,
    attempt TEXT NOT NULL,
    state INTEGER NOT NULL,
    opened_at REAL NOT NULL,
    first INTEGER NOT NULL,
    batches TEXT
);
CREATE INDEX logs_of_trajectories ON logs (trajectory);
CREATE TABLE events (
    batch INTEGER PRIMARY KEY,
    log INTEGER NOT NULL REFERENCES logs,
    data BLOB NOT NULL
);
CREATE TABLE versions (
    lineage TEXT NOT NULL,
    step INTEGER NOT NULL,
    path TEXT NOT NULL,
    published INTEGER PRIMARY KEY AUTOINCREMENT
);
CREATE TABLE forks (
    lineage TEXT PRIMARY KEY,
    parent_lineage TEXT NOT NULL,
    parent_step INTEGER NOT NULL
);
CREATE TABLE blobs (
    sha256 TEXT PRIMARY KEY,
    data BLOB NOT NULL
);
CREATE TABLE needs (
    sequence INTEGER NOT NULL REFERENCES groups,
    sha256 TEXT NOT NULL REFERENCES blobs,
    PRIMARY KEY (sequence, sha256)
) WITHOUT ROWID;
CREATE INDEX needs_of_blobs ON needs (sha256);
CREATE TABLE log_needs (
    log INTEGER NOT NULL REFERENCES logs,
    sha256 TEXT NOT NULL REFERENCES blobs,
    PRIMARY KEY (log, sha256)
) WITHOUT ROWID;
CREATE INDEX log_needs_of_blobs ON log_needs (sha256);
"""

_LATER_TABLES = """
CREATE TABLE IF NOT EXISTS submitted (
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    id TEXT NOT NULL,
    digest BLOB NOT NULL,
    task BLOB NOT NULL,
    PRIMARY KEY (name, number)
);
CREATE UNIQUE INDEX IF NOT EXISTS submitted_by_id ON submitted (id);
CREATE TABLE IF NOT EXISTS evaluated (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    settings TEXT NOT NULL,
    hash TEXT NOT NULL,
    trajectory BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS evaluated_rows ON evaluated (id, settings);
"""
"""Tables that journals of earlier engines of this format lack. Readers do without them."""

_VERSIONS = "CREATE TABLE versions (lineage TEXT, step INTEGER, path TEXT, published INTEGER);"


class JournalLock:
    """The journal's lock, held from construction until `release`."""

    def __init__(self, journal: Path) -> None:
        """Raises StartupError while another process holds it, OSError if the file cannot be
        made."""
        self._descriptor = os.open(lock_file(journal), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + LOCK_SECONDS
        while not _locked(self._descriptor, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
                os.close(self._descriptor)
                raise StartupError(
                    f"the journal {journal} is in use by process {holder or 'unknown'}, which "
                    "serves this run folder: stop it, or give this run another run.folder"
                )
            time.sleep(0.02)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Lets another process have the journal. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def lock_file(journal: Path) -> Path:
    """The lock file of a journal."""
    return journal.with_name(journal.name + ".lock")


def engine_lives(journal: Path) -> bool:
    """Whether a process holds the journal's lock."""
    try:
        descriptor = os.open(lock_file(journal), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _locked(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def open_database(file: Path) -> sqlite3.Connection:
    """The journal's connection; a new file gets its tables. Raises StartupError for a file that
    this engine cannot use."""
    try:
        check_regular(file)
        db = sqlite3.connect(file, check_same_thread=False, isolation_level=None, timeout=10.0)
    except sqlite3.Error as error:
        raise unusable(file, error) from error
    try:
        new = not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if new:
            db.execute("PRAGMA auto_vacuum=INCREMENTAL")
        else:
            refuse_other_schemas(db, file)
            check_tables(db, _TABLES)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        # Debian's SQLite overwrites deleted data, and undoes statements from a file.
        db.execute("PRAGMA secure_delete=OFF")
        db.execute("PRAGMA temp_store=MEMORY")
        db.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        db.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
        db.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
        if new:
            version = f"PRAGMA user_version={SCHEMA_VERSION};"
            db.executescript(f"BEGIN IMMEDIATE; {_TABLES} {version} COMMIT;")
        db.executescript(f"BEGIN IMMEDIATE; {_LATER_TABLES} COMMIT;")
        check_tables(db, _LATER_TABLES)
    except sqlite3.Error as error:
        db.close()
        raise unusable(file, error) from error
    except StartupError:
        db.close()
        raise
    return db


def refuse_other_schemas(db: sqlite3.Connection, file: Path) -> None:
    """Raises StartupError for the tables of another engine's version."""
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found != SCHEMA_VERSION:
        age = "an older" if found < SCHEMA_VERSION else "a newer"
        raise StartupError(
            f"the journal {file} was written by {age} engine (format {found}, this engine has "
            f"{SCHEMA_VERSION}): go on with that engine, {NEW_FOLDER}, or {_FORK}"
        )


def open_read_only(file: Path, *, versions_only: bool = False) -> sqlite3.Connection:
    """A connection for a reader, also while an engine writes. versions_only: read only the tables
    of the weights, also in an older engine's journal. Raises StartupError for tables of another
    version, sqlite3.Error if the file is not a journal."""

    def check(db: sqlite3.Connection) -> None:
        if not versions_only:
            refuse_other_schemas(db, file)
        check_tables(db, _VERSIONS if versions_only else _TABLES)

    return sqlite_files.open_read_only(file, check)


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unusable(file: Path, error: Exception) -> StartupError:
    """The error for a file that SQLite cannot work with."""
    code = getattr(error, "sqlite_errorcode", 0)
    fix = f"restore the file, {NEW_FOLDER}, or, if it can still be read, {_FORK}"
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        fix = f"make room or rights for it, or {NEW_FOLDER}"
    return StartupError(f"the journal {file} cannot be used ({error}): {fix}")
