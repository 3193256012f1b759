"""What the engine must not forget: events of attempts, complete groups, weight versions.

SQLite in WAL mode, `synchronous=FULL`: a sequence number that a learner's ledger holds must
never be given to another group, so it must survive a power cut too. One connection, used in one
thread (`writer.py`); callers await, but for `append`, which never waits.

Invariants
- What was appended is durable `GROUP_COMMIT_S` later, and no later than the next call that writes.
- A group, the blobs that it refers to, and the end of its members' logs come in one transaction.
- Which source positions are finished is derived from groups and skipped tasks, stored nowhere.
- Bytes below the durable mark go step by step (`TIDIED_GROUPS`), never all in one transaction.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from engine.core.images.media import Media
from engine.core.trajectory.events import AnyEvent
from engine.errors import StartupError
from engine.serving.journal import blobs as journal_blobs
from engine.serving.journal import facts, groups, identity
from engine.serving.journal.durable import flush_folder
from engine.serving.journal.groups import Counts, Fate, StoredGroup
from engine.serving.journal.jobs import JournalDamaged, JournalFull
from engine.serving.journal.logs import Appended, Logs, OpenLog
from engine.serving.journal.schema import Lock, open_database, unusable
from engine.serving.journal.writer import GROUP_COMMIT_S, Drive, Writer
from toolwright.types import WeightVersion

__all__ = [
    "GROUP_COMMIT_S", "Counts", "History", "Journal", "JournalDamaged", "JournalFull", "OpenLog",
    "StoredGroup",
]  # fmt: skip

History = Literal["open", "all"]
"""What is kept of finished trajectories: nothing but what the learner has not acknowledged, or all
logs and records, for `engine replay` and a viewer."""

TIDIED_GROUPS = 8
"""Groups whose bytes go in one transaction."""
SPARE_PAGES = 16_384
"""Free pages (64 MiB) that the file keeps for what comes next; more than these it gives back."""
VACUUMED_PAGES = 1_024
"""Pages that it gives back in one transaction."""
KEPT_LEARNERS = 256
"""Starts of a learner that are remembered."""


class Journal:
    """Opened once a process; every method is safe to call from many tasks."""

    def __init__(
        self, file: Path, *, history: History = "open", drive: Drive | None = None
    ) -> None:
        """drive: as for `Writer`. StartupError when the file cannot be used or is another
        process's."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._lock = Lock(file)
        except OSError as error:
            raise StartupError(f"the journal {file} cannot be used ({error})") from error
        try:
            self._db = open_database(file)
            try:
                self._read(history)
            except (sqlite3.Error, ValueError) as error:
                self._db.close()
                raise unusable(file, error) from error
        except StartupError:
            self._lock.release()
            raise
        self._file = file
        self._writer = Writer(
            self._db, file, self._logs, tidy=self._tidy, shrink=self._shrink, drive=drive
        )
        self._writer.tidy_soon()
        self._writer.start()

    def _read(self, history: History) -> None:
        self._keeps_all = history == "all"
        self.boot = int(facts.fact(self._db, "boot") or 0) + 1
        facts.set_fact(self._db, "boot", str(self.boot))
        owner = facts.fact(self._db, "owner")
        self.owner = owner or facts.set_fact(self._db, "owner", uuid.uuid4().hex)
        self._learners = tuple(json.loads(facts.fact(self._db, "learners") or "[]"))
        self._counts = groups.count(self._db, facts.number(self._db, "durable"))
        self._logs = Logs(self._db, keep_all=self._keeps_all)

    @property
    def counts(self) -> Counts:
        """As of the last commit."""
        return self._counts

    @property
    def learners(self) -> tuple[str, ...]:
        """Words of the learners that claimed the run, the newest last."""
        return self._learners

    @property
    def full(self) -> bool:
        """The last transaction found no room; what was appended is tried again."""
        return self._writer.full

    @property
    def backlog(self) -> int:
        """Appends that are not durable yet."""
        return self._writer.backlog

    @property
    def commit_s(self) -> float:
        """Seconds that the last transaction took; events are durable that much after
        `GROUP_COMMIT_S` at the latest, while there is room."""
        return self._writer.commit_s

    async def close(self) -> None:
        """Commits what was appended, then lets another process have the journal."""
        await self._writer.close()
        self._lock.release()

    async def claim(self, now: Mapping[str, str]) -> None:
        """Makes a new journal that of this run. StartupError for a journal of another run, with
        the first difference and the mend."""

        def work() -> str | None:
            stored = facts.fact(self._db, "identity")
            if stored is None:
                facts.set_fact(self._db, "identity", identity.to_json(now))
                return None
            return identity.sentence(self._file, identity.from_json(stored), now)

        wrong = await self._writer.write(work)
        if wrong is not None:
            raise StartupError(wrong)

    def append(self, attempt: str, events: Sequence[AnyEvent], blobs: Sequence[Media] = ()) -> None:
        """Events of an attempt ("g0000012-3/b1r0a0"), with the blobs that they refer to.

        Returns at once. After a crash all events of one call are there, or none.
        """
        self._writer.append(Appended(attempt, events, blobs))

    def forget(self, attempt: str) -> None:
        """An attempt is given up: it is never gone on with, and its events may go."""
        self._writer.append(Appended(attempt, None))

    async def flush(self) -> None:
        """Returns when all that was appended is durable. JournalFull when there is no room."""
        await self._writer.write(lambda: None)

    async def open_logs(self) -> dict[str, OpenLog]:
        """By trajectory, the newest attempt of members of groups that are not complete."""
        return await self._writer.write(self._logs.read_open)

    async def add_group(
        self,
        *,
        position: int,
        identity: str,
        members: Sequence[bytes],
        attempts: Sequence[str],
        versions: Sequence[WeightVersion],
        blobs: Sequence[Media] = (),
        turned_away: bool = False,
    ) -> int:
        """Stores a complete group with the next group commit; returns its sequence number.
        JournalFull, nothing stored.

        turned_away: it is never offered, its position is finished, and its bytes are held with
        history "all" alone.

        attempts: those that the members are records of, in the same order. Blobs that their events
        refer to become the group's, beside `blobs`.
        """

        def work() -> tuple[int, list[str]]:
            sequence = groups.add(
                self._db,
                position=position,
                identity=identity,
                members=members,
                attempts=attempts,
                versions=versions,
                fate=Fate.TURNED_AWAY if turned_away else Fate.OFFERED,
                keep_members=self._keeps_all or not turned_away,
            )
            journal_blobs.add(self._db, sequence, blobs)
            ended = self._logs.complete(sequence, attempts)
            if turned_away and not self._keeps_all:
                journal_blobs.release(self._db, [sequence])
            return sequence, ended

        def committed(done: tuple[int, list[str]]) -> None:
            sequence, ended = done
            self._logs.completed(ended)
            self._writer.tidy_soon()
            self._counts = replace(
                self._counts,
                accepted=self._counts.accepted + (0 if turned_away else len(members)),
                waiting=self._counts.waiting + (not turned_away),
                turned_away=self._counts.turned_away + turned_away,
                last_sequence=sequence,
            )

        sequence, _ = await self._writer.write_soon(work, committed)
        return sequence

    async def skip(self, position: int, reason: str) -> None:
        """The task at a position cannot be run: the position counts as finished."""

        def work() -> int:
            cursor = self._db.execute(
                "INSERT INTO skipped VALUES (?, ?) ON CONFLICT DO NOTHING", (position, reason)
            )
            return cursor.rowcount

        def committed(new: int) -> None:
            self._counts = replace(self._counts, skipped=self._counts.skipped + new)

        await self._writer.write(work, committed)

    async def groups_after(self, sequence: int, limit: int) -> list[StoredGroup]:
        """Groups with a higher number that were not dropped, in order, at most `limit`.

        Acknowledged ones are gone: ask `counts` before, their numbers are not answered with less.
        """
        return await self._writer.read(lambda: groups.after(self._db, sequence, limit))

    async def filling(self, batch: int) -> tuple[int, int]:
        """Groups that the batch which is being filled has, and those turned away for it."""
        return await self._writer.read(lambda: groups.filling(self._db, batch))

    async def drop(self, sequences: Sequence[int]) -> None:
        """Marks groups as never to be offered again."""

        def work() -> tuple[int, int, int]:
            waiting = sum(
                groups.waiting(self._db, above=number - 1, up_to=number)
                for number in set(sequences)
                if number > self._counts.durable_sequence
            )
            dropped, members = groups.drop(self._db, sequences)
            if not self._keeps_all:
                journal_blobs.release(self._db, sequences)
            return dropped, members, waiting

        def committed(done: tuple[int, int, int]) -> None:
            dropped, members, waiting = done
            self._counts = replace(
                self._counts,
                accepted=self._counts.accepted - members,
                waiting=self._counts.waiting - waiting,
                dropped_groups=self._counts.dropped_groups + dropped,
            )

        await self._writer.write(work, committed, frees=True)

    async def acknowledge(self, sequence: int) -> int:
        """Raises the durable mark, never lowers it; returns the mark."""

        def work() -> tuple[int, int]:
            before = self._counts.durable_sequence
            mark = max(sequence, before)
            facts.set_fact(self._db, "durable", str(mark))
            gone = groups.waiting(self._db, above=before, up_to=mark)
            self._forget_acknowledged(mark)
            return mark, gone

        def committed(done: tuple[int, int]) -> None:
            mark, gone = done
            self._counts = replace(
                self._counts, durable_sequence=mark, waiting=self._counts.waiting - gone
            )
            self._writer.tidy_soon()

        mark, _ = await self._writer.write(work, committed, frees=True)
        return mark

    async def blob(self, sha256: str) -> bytes | None:
        """What a group or an open attempt refers to; None once nothing needs it."""
        return await self._writer.read(lambda: journal_blobs.read(self._db, sha256))

    async def finished_positions(self) -> set[int]:
        """Source positions whose group is complete, whatever became of it, or was skipped."""
        return await self._writer.read(lambda: groups.positions(self._db))

    async def kept_positions(self) -> list[int]:
        """Source positions of the groups that were not turned away."""
        return await self._writer.read(lambda: groups.kept_positions(self._db))

    async def add_learner(self, learner: str) -> None:
        """Records a claim; it is durable, and among `learners`, when this returns."""

        def work() -> tuple[str, ...]:
            learners = (*self._learners, learner)[-KEPT_LEARNERS:]
            facts.set_fact(self._db, "learners", json.dumps(learners))
            return learners

        def committed(learners: tuple[str, ...]) -> None:
            self._learners = learners

        await self._writer.write(work, committed)

    async def set_version(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None
    ) -> None:
        """Records a publish, and the fork when it opens a lineage; `path` is flushed before.
        PublishFailed where its disk refuses that."""
        await asyncio.to_thread(flush_folder, path)
        await self._writer.write(lambda: facts.add_version(self._db, version, path, parent))

    async def set_given(self, version: WeightVersion) -> None:
        """Records that samplers may be given `version`, before it has a folder."""
        await self._writer.write(lambda: facts.set_fact(self._db, "given", str(version)))

    async def given(self) -> WeightVersion | None:
        """What `set_given` recorded last."""
        found = await self._writer.read(lambda: facts.fact(self._db, "given"))
        return None if found is None else WeightVersion.parse(found)

    async def newest_version(self) -> tuple[WeightVersion, Path] | None:
        """What was published last, None in a new journal."""
        return await self._writer.read(lambda: facts.newest_version(self._db))

    async def first_lineage(self) -> str:
        """The lineage that the run began with, "" in a new journal."""
        return await self._writer.read(lambda: facts.first_lineage(self._db))

    async def forks(self) -> dict[str, WeightVersion]:
        """Lineage to the version that it left."""
        return await self._writer.read(lambda: facts.forks(self._db))

    def _forget_acknowledged(self, mark: int) -> bool:
        if self._keeps_all:
            return False
        some = groups.acknowledged(self._db, mark, TIDIED_GROUPS)
        if some:
            journal_blobs.release(self._db, some)
            groups.forget(self._db, some)
        return len(some) == TIDIED_GROUPS

    def _tidy(self) -> bool:
        """Bytes of acknowledged groups, and events that nobody needs."""
        more = self._forget_acknowledged(self._counts.durable_sequence)
        return self._logs.sweep() or more

    def _shrink(self) -> bool:
        """Gives free pages back. Not in a transaction: only a script steps through all of them."""
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        if free <= SPARE_PAGES:
            return False
        self._db.executescript(f"PRAGMA incremental_vacuum({VACUUMED_PAGES})")
        return True
