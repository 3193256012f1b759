"""The journal's blobs: bytes under their hash, written once, for as long as something needs them.

Statements on the tables blobs, needs (of groups) and log_needs (of attempts in flight). The writer
owns the transactions.

Invariants
- A blob stays while it is needed, across restarts. A group needs it until the group is dropped or
  acknowledged, an attempt until its group is complete.
- The same bytes are stored once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from engine.core.images.media import Media


def add(db: sqlite3.Connection, sequence: int, blobs: Sequence[Media]) -> None:
    """Stores the blobs that group number `sequence` refers to."""
    _store(db, blobs)
    db.executemany(
        "INSERT INTO needs VALUES (?, ?) ON CONFLICT DO NOTHING",
        [(sequence, one.blob.sha256) for one in blobs],
    )


def add_to_log(db: sqlite3.Connection, log: int, blobs: Sequence[Media]) -> None:
    """Stores the blobs that the events of attempt number `log` refer to."""
    _store(db, blobs)
    db.executemany(
        "INSERT INTO log_needs VALUES (?, ?) ON CONFLICT DO NOTHING",
        [(log, one.blob.sha256) for one in blobs],
    )


def transfer(db: sqlite3.Connection, logs: Iterable[int], sequence: int) -> None:
    """Transfers the needs of these attempts to the group."""
    these = list(logs)
    db.execute(
        "INSERT INTO needs SELECT DISTINCT ?, sha256 FROM log_needs"
        f" WHERE log IN ({', '.join('?' * len(these))}) ON CONFLICT DO NOTHING",
        (sequence, *these),
    )


def read(db: sqlite3.Connection, sha256: str) -> bytes | None:
    """The bytes of a blob; None if nothing needs it any more."""
    row = db.execute("SELECT data FROM blobs WHERE sha256 = ?", (sha256,)).fetchone()
    return None if row is None else bytes(row[0])


def release(db: sqlite3.Connection, sequences: Iterable[int]) -> None:
    """Ends the needs of these groups."""
    _release(db, "needs", "sequence", sequences)


def release_log(db: sqlite3.Connection, logs: Iterable[int]) -> None:
    """Ends the needs of these attempts."""
    _release(db, "log_needs", "log", logs)


def _store(db: sqlite3.Connection, blobs: Sequence[Media]) -> None:
    db.executemany(
        "INSERT INTO blobs VALUES (?, ?) ON CONFLICT (sha256) DO NOTHING",
        [(one.blob.sha256, one.data) for one in blobs],
    )


def _release(db: sqlite3.Connection, table: str, column: str, holders: Iterable[int]) -> None:
    these = list(holders)
    where = f"WHERE {column} IN ({', '.join('?' * len(these))})"
    released = db.execute(f"SELECT DISTINCT sha256 FROM {table} {where}", these).fetchall()
    if not released:
        return
    db.execute(f"DELETE FROM {table} {where}", these)
    db.executemany(
        "DELETE FROM blobs WHERE sha256 = :sha256"
        " AND NOT EXISTS (SELECT 1 FROM needs WHERE sha256 = :sha256)"
        " AND NOT EXISTS (SELECT 1 FROM log_needs WHERE sha256 = :sha256)",
        [{"sha256": name} for (name,) in released],
    )
