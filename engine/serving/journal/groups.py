"""The journal's groups: complete, numbered, offered until they are acknowledged.

Statements on the tables groups, members and skipped; transactions are the writer's.

Invariants
- A group is there whole or not at all; its bytes never change, so it is offered again identical.
- Sequence numbers grow and are never reused.
- Id, hash and position of a group stay for good, also of one that was turned away.
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
    """It was, until nothing in it was fresh enough."""
    TURNED_AWAY = 2
    """Never: there is nothing to be learnt of it."""


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
    """accepted: trajectories of groups that are offered; waiting: such groups above the durable
    mark; dropped_groups: too old; turned_away: groups that were never offered; skipped: positions
    whose task cannot be run. Sequence 0 = none yet."""

    accepted: int
    waiting: int
    dropped_groups: int
    last_sequence: int
    durable_sequence: int
    skipped: int = 0
    turned_away: int = 0

    @property
    def arrived(self) -> int:
        """Grows with every group that is offered, and with no other."""
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
    """Stores a group, its members' bytes unless `keep_members` is false; returns its number."""
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


def drop(db: sqlite3.Connection, sequences: Sequence[int]) -> tuple[int, int]:
    """Marks groups; returns how many were not marked before, and their members."""
    marks = ", ".join("?" * len(sequences))
    groups, members = db.execute(
        "SELECT count(*), coalesce(sum(members), 0) FROM groups"
        f" WHERE NOT dropped AND sequence IN ({marks})",
        sequences,
    ).fetchone()
    db.execute(
        f"UPDATE groups SET dropped = {Fate.STALE:d}"
        f" WHERE dropped = {Fate.OFFERED:d} AND sequence IN ({marks})",
        sequences,
    )
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
    found = db.execute(
        "SELECT DISTINCT sequence FROM members WHERE sequence <= ? ORDER BY sequence LIMIT ?",
        (up_to, limit),
    )
    return [number for (number,) in found]


def forget(db: sqlite3.Connection, sequences: Sequence[int]) -> None:
    """Deletes the bytes of these groups' members."""
    marks = ", ".join("?" * len(sequences))
    db.execute(f"DELETE FROM members WHERE sequence IN ({marks})", sequences)


def count(db: sqlite3.Connection, durable: int) -> Counts:
    """The one scan at the start."""
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
    return Counts(
        accepted=accepted,
        waiting=left,
        dropped_groups=stale,
        last_sequence=last,
        durable_sequence=durable,
        skipped=skipped,
        turned_away=turned_away,
    )


def filling(db: sqlite3.Connection, batch: int) -> tuple[int, int]:
    """Of the batch of `batch` groups that is being filled: groups that it has, and those that were
    turned away since the batch before was full. A group that went stale has filled its batch."""
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
    """Source positions of the groups that fill batches, those that went stale among them."""
    found = db.execute("SELECT position FROM groups WHERE dropped <> ?", (Fate.TURNED_AWAY,))
    return [position for (position,) in typed_rows(found, int)]
