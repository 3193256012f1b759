"""The journal's evaluation trajectories, each a group of one, kept for a reader.

Statements on the table evaluated; the writer owns the transactions.

Invariants
- Sequence numbers grow and are never reused. They are not those of training groups.
- The bytes of a trajectory never change. A row of a suite that is held is not stored again.
"""

from __future__ import annotations

import sqlite3

from engine.serving.journal.groups import StoredGroup
from toolwright.reading.sqlite_files import typed_rows
from toolwright.wire import content_hash

DURABLE = "evaluated"
"""The fact that holds the durable mark."""


def add(
    db: sqlite3.Connection, identity: str, settings: str, trajectory: bytes, *, keep: int
) -> tuple[int, int]:
    """Stores a trajectory, and deletes the oldest ones beyond `keep`. Returns the last number and
    how many were deleted."""
    held = db.execute("SELECT 1 FROM evaluated WHERE id = ? AND settings = ?", (identity, settings))
    if held.fetchone() is None:  # a conflict would use up a number
        db.execute(
            "INSERT INTO evaluated (id, settings, hash, trajectory) VALUES (?, ?, ?, ?)",
            (identity, settings, content_hash([trajectory]), trajectory),
        )
    deleted = db.execute(
        "DELETE FROM evaluated WHERE sequence <="
        " (SELECT sequence FROM evaluated ORDER BY sequence DESC LIMIT 1 OFFSET ?)",
        (keep,),
    )
    return last(db), deleted.rowcount


def last(db: sqlite3.Connection) -> int:
    """The highest number that was ever given; 0 without one."""
    found = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'evaluated'")
    return next((int(number) for (number,) in typed_rows(found, int)), 0)


def after(db: sqlite3.Connection, sequence: int, limit: int) -> list[StoredGroup]:
    """Groups with a higher number, in order, at most `limit`."""
    found = db.execute(
        "SELECT sequence, id, hash, trajectory FROM evaluated WHERE sequence > ?"
        " ORDER BY sequence LIMIT ?",
        (sequence, limit),
    )
    return [
        StoredGroup(sequence=number, id=name, hash=digest, versions=(), members=(data,))
        for number, name, digest, data in typed_rows(found, int, str, str, bytes)
    ]


def forget(db: sqlite3.Connection, up_to: int) -> None:
    """Deletes the groups up to a number."""
    db.execute("DELETE FROM evaluated WHERE sequence <= ?", (up_to,))
