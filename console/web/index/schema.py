"""The index's file: its tables, its place, and the reasons to make it again.

Everything in it is derived. A file of another version, a damaged one, and one of a run that has
been begun anew are made again from the run's own files, so nothing here repairs a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from pathlib import Path

SCHEMA_VERSION = 3
NO_NUMBER = "-9e999"
"""What stands for a reward that is no number where rewards are put in order: they come last."""

_TABLES = f"""
CREATE TABLE sources (
    name TEXT PRIMARY KEY, identity TEXT NOT NULL, place INTEGER NOT NULL, broken INTEGER NOT NULL
);
CREATE TABLE rows (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    family TEXT NOT NULL,
    suite TEXT NOT NULL,
    kind TEXT NOT NULL,
    step INTEGER NOT NULL,
    reward REAL,
    stop TEXT NOT NULL,
    status TEXT NOT NULL,
    masked INTEGER NOT NULL,
    turns INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    seconds REAL NOT NULL,
    task TEXT NOT NULL,
    question TEXT NOT NULL,
    answer TEXT NOT NULL,
    tools TEXT NOT NULL,
    source TEXT NOT NULL,
    at INTEGER NOT NULL,
    part INTEGER NOT NULL,
    sample INTEGER
);
CREATE INDEX by_family ON rows (family, id);
CREATE INDEX by_task ON rows (task);
CREATE INDEX by_suite ON rows (suite, id);
CREATE INDEX by_stop ON rows (stop, id);
CREATE INDEX by_step ON rows (step, id);
CREATE INDEX by_reward ON rows (ifnull(reward, {NO_NUMBER}), id);
CREATE INDEX by_turns ON rows (turns, id);
CREATE INDEX by_calls ON rows (calls, id);
CREATE INDEX by_failed ON rows (failed, id);
CREATE INDEX by_tokens ON rows (tokens, id);
CREATE INDEX by_seconds ON rows (seconds, id);
CREATE INDEX narrow ON rows (suite, step, kind, reward);
CREATE TABLE used (
    tool TEXT NOT NULL, row INTEGER NOT NULL, PRIMARY KEY (tool, row)
) WITHOUT ROWID;
CREATE TABLE label_keys (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, spoilt INTEGER NOT NULL
);
CREATE TABLE label_words (
    id INTEGER PRIMARY KEY,
    key INTEGER NOT NULL,
    word TEXT NOT NULL,
    rows INTEGER NOT NULL DEFAULT 0,
    UNIQUE (key, word)
);
CREATE TABLE labels (
    word INTEGER NOT NULL,
    row INTEGER NOT NULL,
    suite TEXT NOT NULL,
    step INTEGER NOT NULL,
    reward REAL,
    PRIMARY KEY (word, row)
) WITHOUT ROWID;
CREATE TABLE times (
    row INTEGER PRIMARY KEY,
    step INTEGER NOT NULL,
    began REAL NOT NULL,
    ended REAL NOT NULL,
    spans TEXT NOT NULL
);
CREATE INDEX times_by_step ON times (step, began, ended);
CREATE INDEX times_by_end ON times (ended, began);
CREATE TABLE marks (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    step INTEGER NOT NULL,
    at REAL NOT NULL,
    name TEXT NOT NULL,
    seconds TEXT NOT NULL
);
CREATE INDEX marks_by_step ON marks (kind, step);
CREATE INDEX marks_by_time ON marks (kind, at);
CREATE VIRTUAL TABLE texts USING fts5(
    question, wrote, read, content='', tokenize='unicode61 remove_diacritics 2'
);
"""


def index_file(run: Path, cache: Path) -> Path:
    """The index of the run in a folder: the same for every name of the folder."""
    whole = run.resolve()
    digest = hashlib.sha256(os.fsencode(whole)).hexdigest()[:16]
    return cache / f"{whole.name[:60]}-{digest}.sqlite"


def cache_folder() -> Path:
    """The folder of this user's indexes, made if it is missing. Raises OSError."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(root) if os.path.isabs(root) else Path.home() / ".cache"
    folder = home / "toolwright" / "view"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def open_index(file: Path) -> sqlite3.Connection:
    """A connection for the writer. A file that is not an index of this version is removed first.
    Raises sqlite3.Error if no file can be made."""
    try:
        db = _opened(file)
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version == SCHEMA_VERSION:
            return db
        if not tables:
            _make(db)
            return db
        db.close()
    except sqlite3.DatabaseError as error:
        if not is_spoilt(error):
            raise
    remove_index(file)
    db = _opened(file)
    _make(db)
    return db


def is_spoilt(error: sqlite3.Error) -> bool:
    """Whether the file is damaged or not SQLite's, so that a retry does not help."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def remove_index(file: Path) -> None:
    """It and what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{file}{suffix}")


def read_index(file: Path) -> sqlite3.Connection:
    """A connection for one question, beside the writer's. Raises sqlite3.Error."""
    db = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    db.execute("PRAGMA cache_size=-16384")
    db.execute("PRAGMA temp_store=MEMORY")
    db.row_factory = sqlite3.Row
    return db


def _opened(file: Path) -> sqlite3.Connection:
    db = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=10.0)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=OFF")  # what a power cut spoils is made again
    db.execute("PRAGMA cache_size=-32768")
    return db


def _make(db: sqlite3.Connection) -> None:
    db.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version={SCHEMA_VERSION}; COMMIT;")
