"""The journal's groups: complete, numbered, offered until they are acknowledged.

Statements on the tables groups, members and skipped; transactions are the writer's.

Invariants
- A group is there whole or not at all; its bytes never change, so it is offered again identical.
- Sequence numbers grow and are never reused.
- Id, hash and position of a group stay for good.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from toolwright.types import WeightVersion
from toolwright.wire import content_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A group as it is offered; `versions` are all that wrote in it."""

    sequence: int
    id: str
    hash: str
    versions: tuple[WeightVersion, ...]
    members: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """accepted: trajectories of groups that were not dropped; waiting: such groups above the
    durable mark; skipped: positions whose task cannot be run. Sequence 0 = none yet."""

    accepted: int
    waiting: int
    dropped_groups: int
    last_sequence: int
    durable_sequence: int
    skipped: int = 0


def add(
    db: sqlite3.Connection,
    *,
    position: int,
    identity: str,
    members: Sequence[bytes],
    attempts: Sequence[str],
    versions: Sequence[WeightVersion],
) -> int:
    """Stores a group; returns its sequence number."""
    texts = json.dumps([str(version) for version in versions])
    cursor = db.execute(
        "INSERT INTO groups (position, id, hash, members, versions) VALUES (?, ?, ?, ?, ?)",
        (position, identity, content_hash(members), len(members), texts),
    )
    sequence = int(cursor.lastrowid or 0)
    rows = zip(attempts, members, strict=True)
    db.executemany(
        "INSERT INTO members VALUES (?, ?, ?, ?)",
        [(sequence, number, *row) for number, row in enumerate(rows)],
    )
    return sequence


def after(db: sqlite3.Connection, sequence: int, limit: int) -> list[StoredGroup]:
    """Groups with a higher number that were not dropped, in order, at most `limit`."""
    rows = db.execute(
        "SELECT sequence, id, hash, versions FROM groups"
        " WHERE sequence > ? AND NOT dropped ORDER BY sequence LIMIT ?",
        (sequence, limit),
    ).fetchall()
    return [
        StoredGroup(
            sequence=number,
            id=identity,
            hash=digest,
            versions=tuple(WeightVersion.parse(text) for text in json.loads(versions)),
            members=tuple(
                member
                for (member,) in db.execute(
                    "SELECT trajectory FROM members WHERE sequence = ? ORDER BY number", (number,)
                )
            ),
        )
        for number, identity, digest, versions in rows
    ]


def drop(db: sqlite3.Connection, sequences: Sequence[int]) -> tuple[int, int]:
    """Marks groups; returns how many were not marked before, and their members."""
    marks = ", ".join("?" * len(sequences))
    groups, members = db.execute(
        "SELECT count(*), coalesce(sum(members), 0) FROM groups"
        f" WHERE NOT dropped AND sequence IN ({marks})",
        sequences,
    ).fetchone()
    db.execute(f"UPDATE groups SET dropped = 1 WHERE sequence IN ({marks})", sequences)
    return groups, members


def waiting(db: sqlite3.Connection, *, above: int, up_to: int) -> int:
    """Groups in a range of numbers that were not dropped."""
    (count,) = db.execute(
        "SELECT count(*) FROM groups WHERE NOT dropped AND sequence > ? AND sequence <= ?",
        (above, up_to),
    ).fetchone()
    return int(count)


def acknowledged(db: sqlite3.Connection, up_to: int, limit: int) -> list[int]:
    """The first groups up to a number that still have their members' bytes."""
    rows = db.execute(
        "SELECT DISTINCT sequence FROM members WHERE sequence <= ? ORDER BY sequence LIMIT ?",
        (up_to, limit),
    )
    return [number for (number,) in rows]


def forget(db: sqlite3.Connection, sequences: Sequence[int]) -> None:
    """Deletes the bytes of these groups' members."""
    marks = ", ".join("?" * len(sequences))
    db.execute(f"DELETE FROM members WHERE sequence IN ({marks})", sequences)


def count(db: sqlite3.Connection, durable: int) -> Counts:
    """The one scan at the start."""
    accepted, left, dropped, last = db.execute(
        "SELECT coalesce(sum(members) FILTER (WHERE NOT dropped), 0),"
        " count(*) FILTER (WHERE NOT dropped AND sequence > ?),"
        " count(*) FILTER (WHERE dropped), coalesce(max(sequence), 0) FROM groups",
        (durable,),
    ).fetchone()
    (skipped,) = db.execute("SELECT count(*) FROM skipped").fetchone()
    return Counts(
        accepted=accepted,
        waiting=left,
        dropped_groups=dropped,
        last_sequence=last,
        durable_sequence=durable,
        skipped=skipped,
    )


def positions(db: sqlite3.Connection) -> set[int]:
    """Source positions of groups and of skipped tasks."""
    both = "SELECT position FROM groups UNION SELECT position FROM skipped"
    return {position for (position,) in db.execute(both)}
