"""What the engine must not forget: complete groups, acknowledgements, weight versions.

SQLite in WAL mode, `synchronous=FULL`: a sequence number that a learner's ledger holds must
never be given to another group, so it must survive a power cut too. One connection, used in one
worker thread; callers await.

Invariants
- A group is there whole or not at all; its bytes never change, so it is offered again identical.
- Sequence numbers grow and are never reused.
- Bytes below the durable mark may go; id, hash and position of a group stay.
- Which source positions are finished is derived from the groups; nothing else says it.
- A group and the images that it refers to (`journal_blobs.py`) come in one transaction, and their
  bytes go in one.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from engine.errors import StartupError
from engine.images.media import Media
from engine.journal import blobs as journal_blobs
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion
from toolwright.wire import content_hash

LOCK_SECONDS = 1.0
"""How long another process's lock is waited for: it is held for the other one's whole life."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS groups (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    position INTEGER NOT NULL,
    id TEXT NOT NULL,
    hash TEXT NOT NULL,
    members INTEGER NOT NULL,
    versions TEXT NOT NULL,
    dropped INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS members (
    sequence INTEGER NOT NULL REFERENCES groups,
    number INTEGER NOT NULL,
    trajectory BLOB NOT NULL,
    PRIMARY KEY (sequence, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS versions (
    lineage TEXT NOT NULL,
    step INTEGER NOT NULL,
    path TEXT NOT NULL,
    published INTEGER PRIMARY KEY AUTOINCREMENT
);
CREATE TABLE IF NOT EXISTS forks (
    lineage TEXT PRIMARY KEY,
    parent_lineage TEXT NOT NULL,
    parent_step INTEGER NOT NULL
);
"""

Result = TypeVar("Result")


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
    durable mark. Sequence 0 = none yet."""

    accepted: int
    waiting: int
    dropped_groups: int
    last_sequence: int
    durable_sequence: int


class JournalFull(ServiceError):
    """The disk is full: nothing was stored. Who asked over gRPC may ask again."""

    def __init__(self, file: Path) -> None:
        super().__init__(
            reasons.ERROR_REASON_DISK_FULL,
            f"no room for {file}",
            mend="free space on that disk; the run goes on by itself",
            retry_after=5.0,
        )


class Journal:
    """Opened once a process; every method is safe to await from many tasks."""

    def __init__(self, file: Path) -> None:
        """StartupError when the file cannot be opened or is another process's."""
        self._file = file
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                file, timeout=LOCK_SECONDS, check_same_thread=False, isolation_level=None
            )
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA + journal_blobs.SCHEMA)
            self.boot = int(self._fact("boot") or 0) + 1
            self._set_fact("boot", str(self.boot))
        except (sqlite3.Error, OSError) as error:
            raise StartupError(
                f"the journal {file} cannot be used ({error}); does another engine serve this "
                "run folder?"
            ) from error
        self.owner = self._fact("owner") or self._set_fact("owner", uuid.uuid4().hex)

    async def close(self) -> None:
        await self._run(self._db.close)
        self._thread.shutdown()

    async def add_group(
        self,
        *,
        position: int,
        identity: str,
        members: Sequence[bytes],
        versions: Sequence[WeightVersion],
        blobs: Sequence[Media] = (),
    ) -> int:
        """Stores a complete group with its blobs; returns its sequence number. JournalFull,
        nothing stored."""

        def work() -> int:
            texts = json.dumps([str(version) for version in versions])
            with self._transaction():
                cursor = self._db.execute(
                    "INSERT INTO groups (position, id, hash, members, versions)"
                    " VALUES (?, ?, ?, ?, ?)",
                    (position, identity, content_hash(members), len(members), texts),
                )
                sequence = int(cursor.lastrowid or 0)
                self._db.executemany(
                    "INSERT INTO members VALUES (?, ?, ?)",
                    [(sequence, number, member) for number, member in enumerate(members)],
                )
                journal_blobs.add(self._db, sequence, blobs)
            return sequence

        return await self._run(work)

    async def groups_after(self, sequence: int, limit: int) -> list[StoredGroup]:
        """Groups with a higher number that were not dropped, in order, at most `limit`.

        Acknowledged ones are gone: ask `counts` before, their numbers are not answered with less.
        """

        def work() -> list[StoredGroup]:
            rows = self._db.execute(
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
                        for (member,) in self._db.execute(
                            "SELECT trajectory FROM members WHERE sequence = ? ORDER BY number",
                            (number,),
                        )
                    ),
                )
                for number, identity, digest, versions in rows
            ]

        return await self._run(work)

    async def drop(self, sequences: Sequence[int]) -> None:
        """Marks groups as never to be offered again."""

        def work() -> None:
            with self._transaction():
                self._db.executemany(
                    "UPDATE groups SET dropped = 1 WHERE sequence = ?", [(s,) for s in sequences]
                )
                journal_blobs.release(self._db, dropped=sequences)

        await self._run(work)

    async def acknowledge(self, sequence: int) -> int:
        """Raises the durable mark, never lowers it; returns the mark."""

        def work() -> int:
            mark = max(sequence, int(self._fact("durable") or 0))
            with self._transaction():
                self._set_fact("durable", str(mark))
                self._db.execute("DELETE FROM members WHERE sequence <= ?", (mark,))
                journal_blobs.release(self._db, up_to=mark)
            return mark

        return await self._run(work)

    async def blob(self, sha256: str) -> bytes | None:
        """What a group refers to; None once no group needs it."""
        return await self._run(lambda: journal_blobs.read(self._db, sha256))

    async def counts(self) -> Counts:
        def work() -> Counts:
            durable = int(self._fact("durable") or 0)
            accepted, waiting, dropped, last = self._db.execute(
                "SELECT coalesce(sum(members) FILTER (WHERE NOT dropped), 0),"
                " count(*) FILTER (WHERE NOT dropped AND sequence > ?),"
                " count(*) FILTER (WHERE dropped), coalesce(max(sequence), 0) FROM groups",
                (durable,),
            ).fetchone()
            return Counts(
                accepted=accepted,
                waiting=waiting,
                dropped_groups=dropped,
                last_sequence=last,
                durable_sequence=durable,
            )

        return await self._run(work)

    async def finished_positions(self) -> set[int]:
        """Source positions whose group is complete, dropped ones included."""

        def work() -> set[int]:
            return {row[0] for row in self._db.execute("SELECT position FROM groups")}

        return await self._run(work)

    async def set_version(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None
    ) -> None:
        """Records a publish, and the fork when it opens a lineage."""

        def work() -> None:
            with self._transaction():
                self._db.execute(
                    "INSERT INTO versions (lineage, step, path) VALUES (?, ?, ?)",
                    (version.lineage, version.step, str(path)),
                )
                if parent is not None:
                    self._db.execute(
                        "INSERT OR REPLACE INTO forks VALUES (?, ?, ?)",
                        (version.lineage, parent.lineage, parent.step),
                    )

        await self._run(work)

    async def newest_version(self) -> tuple[WeightVersion, Path] | None:
        """What was published last, None in a new journal."""

        def work() -> tuple[WeightVersion, Path] | None:
            row = self._db.execute(
                "SELECT lineage, step, path FROM versions ORDER BY published DESC LIMIT 1"
            ).fetchone()
            if row is None:
                return None
            return WeightVersion(lineage=row[0], step=row[1]), Path(row[2])

        return await self._run(work)

    async def forks(self) -> dict[str, WeightVersion]:
        """Lineage to the version that it left."""

        def work() -> dict[str, WeightVersion]:
            return {
                lineage: WeightVersion(lineage=parent, step=step)
                for lineage, parent, step in self._db.execute("SELECT * FROM forks")
            }

        return await self._run(work)

    def _fact(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def _set_fact(self, name: str, value: str) -> str:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))
        return value

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db)

    async def _run(self, work: Callable[[], Result]) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise JournalFull(self._file) from error
            raise


class _Transaction:
    """BEGIN IMMEDIATE ... COMMIT, or ROLLBACK when the body raises."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_rest: object) -> None:
        try:
            if kind is None:
                self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:  # SQLite itself rolls back on a full disk
                self._db.execute("ROLLBACK")
