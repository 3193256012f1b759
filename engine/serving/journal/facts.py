"""The journal's single facts and the weight versions that were published."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from toolwright.reading.sqlite_files import typed_rows
from toolwright.types import WeightVersion


def fact(db: sqlite3.Connection, name: str) -> str | None:
    """Value of a fact; None if it is not set."""
    row = db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def number(db: sqlite3.Connection, name: str) -> int:
    """A fact that is a whole number; 0 if it is not set. Raises sqlite3.DatabaseError for a value
    that no engine wrote."""
    value = fact(db, name) or "0"
    if not (value.isascii() and value.isdecimal() and len(value) < 20):
        raise sqlite3.DatabaseError(f"the fact {name} is not a number: {value[:60]!r}")
    return int(value)


def set_fact(db: sqlite3.Connection, name: str, value: str) -> str:
    """Returns the value."""
    db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))
    return value


def add_version(
    db: sqlite3.Connection, version: WeightVersion, path: Path, parent: WeightVersion | None
) -> None:
    """Adds a publish, and the fork if it opens a lineage."""
    db.execute(
        "INSERT INTO versions (lineage, step, path) VALUES (?, ?, ?)",
        (version.lineage, version.step, str(path)),
    )
    if parent is not None:
        db.execute(
            "INSERT OR REPLACE INTO forks VALUES (?, ?, ?)",
            (version.lineage, parent.lineage, parent.step),
        )


def newest_version(db: sqlite3.Connection) -> tuple[WeightVersion, Path] | None:
    """The version published last, and its folder; None in a new journal."""
    found = db.execute("SELECT lineage, step, path FROM versions ORDER BY published DESC LIMIT 1")
    for lineage, step, path in typed_rows(found, str, int, str):
        return WeightVersion(lineage=lineage, step=step), Path(path)
    return None


def first_lineage(db: sqlite3.Connection) -> str:
    """The lineage that the run began with, before any resume; "" in a new journal."""
    row = db.execute("SELECT lineage FROM versions ORDER BY published LIMIT 1").fetchone()
    return "" if row is None else str(row[0])


def forks(db: sqlite3.Connection) -> dict[str, WeightVersion]:
    """By lineage, the version of the parent that it left."""
    found = db.execute("SELECT lineage, parent_lineage, parent_step FROM forks")
    return {
        lineage: WeightVersion(lineage=parent, step=step)
        for lineage, parent, step in typed_rows(found, str, str, int)
    }
