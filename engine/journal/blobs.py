"""The journal's blobs: bytes under their hash, written once, for as long as a group needs them.

Owns two tables in the journal's database and the statements on them; transactions are the
journal's.

Invariants
- A blob is there while a group refers to it that was neither dropped nor acknowledged, however
  often the engine is started anew.
- The same bytes are stored once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from engine.images.media import Media

SCHEMA = """
CREATE TABLE IF NOT EXISTS blobs (
    sha256 TEXT PRIMARY KEY,
    data BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS needs (
    sequence INTEGER NOT NULL REFERENCES groups,
    sha256 TEXT NOT NULL REFERENCES blobs,
    PRIMARY KEY (sequence, sha256)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS needs_of_blobs ON needs (sha256);
"""


def add(db: sqlite3.Connection, sequence: int, blobs: Sequence[Media]) -> None:
    """What group number `sequence` refers to."""
    db.executemany(
        "INSERT INTO blobs VALUES (?, ?) ON CONFLICT (sha256) DO NOTHING",
        [(one.blob.sha256, one.data) for one in blobs],
    )
    db.executemany(
        "INSERT INTO needs VALUES (?, ?) ON CONFLICT DO NOTHING",
        [(sequence, one.blob.sha256) for one in blobs],
    )


def read(db: sqlite3.Connection, sha256: str) -> bytes | None:
    """None where no group needs it."""
    row = db.execute("SELECT data FROM blobs WHERE sha256 = ?", (sha256,)).fetchone()
    return None if row is None else bytes(row[0])


def release(db: sqlite3.Connection, *, up_to: int = 0, dropped: Sequence[int] = ()) -> None:
    """Groups up to a number, or these, need their blobs no more."""
    db.execute("DELETE FROM needs WHERE sequence <= ?", (up_to,))
    db.executemany("DELETE FROM needs WHERE sequence = ?", [(number,) for number in dropped])
    db.execute("DELETE FROM blobs WHERE sha256 NOT IN (SELECT sha256 FROM needs)")
