"""The journal's submitted tasks, in the order of their arrival.

Statements on the table submitted; the writer owns the transactions.

Invariants
- An id belongs to one task for good. The same task under its id changes nothing.
- Tasks of one name are numbered from 0 without a gap. The number is a position in the source.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.reading.sqlite_files import typed_rows
from toolwright.rpc.errors import ServiceError


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedTask:
    """A task as it is stored."""

    id: str
    name: str
    """Name of its task in the recipe's [tasks]; "" = the recipe has one task."""
    data: bytes
    """The serialised message."""


def add(db: sqlite3.Connection, tasks: Sequence[SubmittedTask]) -> list[str]:
    """Stores the tasks whose ids are new. Returns their names, in order. Raises ServiceError for an
    id that another task has."""
    added = []
    for task in tasks:
        digest = hashlib.sha256(task.data).digest()
        (number,) = db.execute(
            "SELECT coalesce(max(number) + 1, 0) FROM submitted WHERE name = ?", (task.name,)
        ).fetchone()
        stored = db.execute(
            "INSERT INTO submitted VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
            (task.name, number, task.id, digest, task.data),
        )
        if stored.rowcount:
            added.append(task.name)
        elif db.execute("SELECT digest FROM submitted WHERE id = ?", (task.id,)).fetchone() != (
            digest,
        ):
            raise ServiceError(
                reasons.ERROR_REASON_CALL_ID_REUSED,
                f"another task was submitted as {task.id!r}",
                subject=task.id,
                fix="give each task an id of its own",
            )
    return added


def count(db: sqlite3.Connection) -> dict[str, int]:
    """Number of tasks of each name."""
    found = db.execute("SELECT name, count(*) FROM submitted GROUP BY name")
    return dict(typed_rows(found, str, int))


def read(db: sqlite3.Connection, name: str, number: int) -> bytes:
    """The serialised message of a task that is stored. Raises sqlite3.DatabaseError otherwise."""
    found = db.execute("SELECT task FROM submitted WHERE name = ? AND number = ?", (name, number))
    for (data,) in typed_rows(found, bytes):
        return bytes(data)
    raise sqlite3.DatabaseError(f"task {number} of {name!r} is missing")
