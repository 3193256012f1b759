"""The journal's groups: complete, numbered, offered until they are acknowledged.

Statements on the tables groups, members and skipped; the writer owns the transactions.

Invariants
- A group is stored whole or not at all. Its bytes never change, so a second offer is identical.
- Sequence numbers grow and are never reused.
- Id, hash and position of a group stay for good, even if the group was discarded.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from toolwright.reading.sqlite_files import typed_rows
from toolwright.types import WeightVersion
from toolwright.wire import content_hash


class Fate(IntEnum):
    """The column `dropped`: whether a group is offered."""

    OFFERED = 0
    STALE = 1
    """Offered until nothing in it was fresh enough."""
    TURNED_AWAY = 2
    """Never offered: it has nothing to teach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A group as it is offered; `versions` are all versions that wrote in it."""

    sequence: int
    id: str
    hash: str
    versions: tuple[WeightVersion, ...]
    members: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """Counts of groups and trajectories. Sequence 0: no group yet."""

    accepted: int
    """Trajectories of groups that are offered."""
    waiting: int
    """Offered groups above the durable mark."""
    dropped_groups: int
    """Groups that became too old."""
    last_sequence: int
    durable_sequence: int
    skipped: int = 0
    """Positions whose task cannot be run."""
    turned_away: int = 0
    """Groups that were never offered."""

    @property
    def arrived(self) -> int:
        """Grows with every offered group, and with no other."""
        return self.last_sequence - self.turned_away


def add(
    db: sqlite3.Connection,
    *,
    position: int,
    identity: str,
    members: Sequence[bytes],
    attempts: Sequence[str],
    versions: Sequence[WeightVersion],
    fate: Fate = Fate.OFFERED,
    keep_members: bool = True,
) -> int:
    """Stores a group, and its members' bytes unless `keep_members` is false. Returns its number."""
    texts = json.dumps([str(version) for version in versions])
    cursor = db.execute(
        "INSERT INTO groups (position, id, hash, members, versions, dropped)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (position, identity, content_hash(members), len(members), texts, fate),
    )
    sequence = int(cursor.lastrowid or 0)
    if not keep_members:
        return sequence
    named = zip(attempts, members, strict=True)
    db.executemany(
        "INSERT INTO members VALUES (?, ?, ?, ?)",
        [(sequence, number, *row) for number, row in enumerate(named)],
    )
    return sequence


def member_of(db: sqlite3.Connection, attempt: str) -> bytes | None:
    """Bytes of the trajectory that an attempt became; None if they are not kept."""
    row = db.execute("SELECT trajectory FROM members WHERE attempt = ?", (attempt,)).fetchone()
    return None if row is None else bytes(row[0])


def after(db: sqlite3.Connection, sequence: int, limit: int) -> list[StoredGroup]:
    """Groups with a higher number that were not dropped, in order, at most `limit`."""
    found = db.execute(
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
        for number, identity, digest, versions in typed_rows(found, int, str, str, str)
    ]


def drop(db: sqlite3.Connection, sequence: int) -> int:
    """Marks an offered group as dropped. Returns the number of its members; 0 for another group."""
    marked = db.execute(
        "UPDATE groups SET dropped = ? WHERE dropped = ? AND sequence = ? RETURNING members",
        (Fate.STALE, Fate.OFFERED, sequence),
    )
    return sum(members for (members,) in marked.fetchall())


def waiting(db: sqlite3.Connection, *, above: int, up_to: int) -> int:
    """Number of groups in a range of numbers that were not dropped."""
    (count,) = db.execute(
        "SELECT count(*) FROM groups WHERE NOT dropped AND sequence > ? AND sequence <= ?",
        (above, up_to),
    ).fetchone()
    return int(count)


def acknowledged(db: sqlite3.Connection, up_to: int, limit: int) -> list[int]:
    """The first groups up to a number that still have their members' bytes."""
    found = db.execute(
        "SELECT DISTINCT sequence FROM members WHERE sequence <= ? ORDER BY sequence LIMIT ?",
        (up_to, limit),
    )
    return [number for (number,) in found]


def forget(db: sqlite3.Connection, sequences: Sequence[int]) -> None:
    """Deletes the bytes of these groups' members."""
    marks = ", ".join("?" * len(sequences))
    db.execute(f"DELETE FROM members WHERE sequence IN ({marks})", sequences)


def count(db: sqlite3.Connection, durable: int) -> GroupCounts:
    """Counts all groups: the one scan at the start."""
    counted = db.execute(
        "SELECT coalesce(sum(members) FILTER (WHERE NOT dropped), 0),"
        " count(*) FILTER (WHERE NOT dropped AND sequence > ?),"
        f" count(*) FILTER (WHERE dropped = {Fate.STALE:d}),"
        f" count(*) FILTER (WHERE dropped = {Fate.TURNED_AWAY:d}),"
        " coalesce(max(sequence), 0) FROM groups",
        (durable,),
    )
    ((accepted, left, stale, turned_away, last),) = typed_rows(counted, int, int, int, int, int)
    (skipped,) = db.execute("SELECT count(*) FROM skipped").fetchone()
    return GroupCounts(
        accepted=accepted,
        waiting=left,
        dropped_groups=stale,
        last_sequence=last,
        durable_sequence=durable,
        skipped=skipped,
        turned_away=turned_away,
    )


def batch_progress(db: sqlite3.Connection, batch: int) -> tuple[int, int]:
    """Groups that the batch in progress has, and groups discarded since the batch before was
    full. A stale group has filled its batch. batch: groups of a whole batch."""
    (kept,) = db.execute(
        "SELECT count(*) FROM groups WHERE dropped <> ?", (Fate.TURNED_AWAY,)
    ).fetchone()
    whole = kept // batch * batch
    (turned_away,) = db.execute(
        "SELECT count(*) FROM groups WHERE dropped = :away AND sequence > coalesce("
        " (SELECT sequence FROM groups WHERE dropped <> :away AND :whole > 0"
        "  ORDER BY sequence LIMIT 1 OFFSET max(:whole - 1, 0)), 0)",
        {"away": Fate.TURNED_AWAY, "whole": whole},
    ).fetchone()
    return kept - whole, turned_away


def positions(db: sqlite3.Connection) -> set[int]:
    """Source positions of groups and of skipped tasks."""
    both = "SELECT position FROM groups UNION SELECT position FROM skipped"
    return {position for (position,) in db.execute(both)}


def kept_positions(db: sqlite3.Connection) -> list[int]:
    """Source positions of the groups that fill batches, including stale ones."""
    found = db.execute("SELECT position FROM groups WHERE dropped <> ?", (Fate.TURNED_AWAY,))
    return [position for (position,) in typed_rows(found, int)]
