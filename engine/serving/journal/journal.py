"""The engine's durable state: events of attempts, complete groups, weight versions.

SQLite in WAL mode, `synchronous=FULL`. A sequence number in a learner's ledger must never be given
to another group, so it must survive a power cut too. One connection, used in one thread
(`writer.py`). Callers await, except for `append`, which never waits.

Invariants
- Appended events are durable `GROUP_COMMIT_S` later, and at the latest with the next call that
  writes.
- A group, its blobs and the end of its members' logs come in one transaction.
- Finished source positions are derived from groups and skipped tasks, and stored nowhere.
- Bytes below the durable mark go step by step (`TIDIED_GROUPS`), never all in one transaction.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from engine.core.images.media import Media
from engine.core.trajectory.events import AnyEvent
from engine.errors import StartupError
from engine.serving.journal import blobs as journal_blobs
from engine.serving.journal import evaluated, facts, groups, identity, submitted
from engine.serving.journal.durable import flush_folder
from engine.serving.journal.groups import Fate, GroupCounts, StoredGroup
from engine.serving.journal.jobs import JournalDamaged, JournalFull
from engine.serving.journal.logs import LogEntry, Logs, OpenLog
from engine.serving.journal.schema import JournalLock, open_database, unusable
from engine.serving.journal.submitted import SubmittedTask
from engine.serving.journal.writer import GROUP_COMMIT_S, Drive, Writer
from toolwright import wire
from toolwright.common.v1 import trajectory_pb2
from toolwright.types import WeightVersion

__all__ = [
    "GROUP_COMMIT_S", "GroupCounts", "History", "Journal", "JournalDamaged", "JournalFull",
    "OpenLog", "StoredGroup", "SubmittedTask",
]  # fmt: skip

History = Literal["open", "all"]
"""What is kept of finished trajectories. "open": only what the learner has not acknowledged. "all":
all logs and records, for `engine replay` and a viewer."""

TIDIED_GROUPS = 8
"""Groups whose bytes are deleted in one transaction."""
SPARE_PAGES = 16_384
"""Free pages (64 MiB) that the file keeps for later writes; it gives back more than these."""
FULL_PAUSE_S = 0.5
"""Interval between checks whether a full disk has room for events that a caller waits for."""
VACUUMED_PAGES = 1_024
"""Pages that it gives back in one transaction."""
KEPT_LEARNERS = 256
"""Claims of learners that are remembered."""


class Journal:
    """The journal, opened once per process. Every method is safe to call from many tasks."""

    def __init__(
        self, file: Path, *, history: History = "open", drive: Drive | None = None
    ) -> None:
        """drive: as for `Writer`. Raises StartupError if the file cannot be used, or if another
        process uses it."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._lock = JournalLock(file)
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
        self._submitted = submitted.count(self._db)

    @property
    def counts(self) -> GroupCounts:
        """Counts as of the last commit."""
        return self._counts

    @property
    def learners(self) -> tuple[str, ...]:
        """Words of the learners that claimed the run, the newest last."""
        return self._learners

    @property
    def submitted(self) -> Mapping[str, int]:
        """Number of submitted tasks, by their names in the recipe's [tasks]."""
        return self._submitted

    @property
    def full(self) -> bool:
        """Whether the last transaction found no room; appended events are tried again."""
        return self._writer.full

    @property
    def backlog(self) -> int:
        """Number of appends that are not durable yet."""
        return self._writer.backlog

    @property
    def commits(self) -> int:
        """Number of transactions since the start; each flushes the disk once."""
        return self._writer.commits

    @property
    def commit_s(self) -> float:
        """Duration of the last transaction, in seconds. Events become durable within this time
        after `GROUP_COMMIT_S`, while there is room."""
        return self._writer.commit_s

    async def close(self) -> None:
        """Commits all appended events, then lets another process have the journal."""
        await self._writer.close()
        self._lock.release()

    async def claim(self, now: Mapping[str, str]) -> None:
        """Claims a new journal for this run. Raises StartupError for a journal of another run, with
        the first difference and the fix."""

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
        """Appends events of an attempt ("g0000012-3/b1r0a0"), with the blobs that they refer to.

        Returns at once. After a crash either all events of one call are there, or none of them.
        """
        self._writer.append(LogEntry(attempt, events, blobs))

    def append_encoded(self, attempt: str, events: bytes, blobs: Sequence[Media] = ()) -> None:
        """As `append`, with events that another process encoded. They must be readable: the journal
        does not decode them."""
        self._writer.append(LogEntry(attempt, events, blobs))

    def forget(self, attempt: str) -> None:
        """Gives up an attempt: it never goes on, and its events may be deleted."""
        self._writer.append(LogEntry(attempt, None))

    async def flush(self) -> None:
        """Returns when all appended events are durable. Raises JournalFull if there is no room."""
        await self._writer.write(lambda: None)

    async def durable(self) -> None:
        """Returns when all events that were appended before are durable: a full disk delays it.
        Concurrent callers share a commit."""
        while True:
            try:
                return await self._writer.commit_now()
            except JournalFull:
                await asyncio.sleep(FULL_PAUSE_S)

    async def committed(self) -> None:
        """As `durable`, with the next group commit: for callers that can wait."""
        while True:
            try:
                return await self._writer.write_soon(lambda: None, lambda _: None)
            except JournalFull:
                await asyncio.sleep(FULL_PAUSE_S)

    async def secret(self) -> bytes:
        """32 random bytes that stay the same in all lives of the run."""

        def work() -> str:
            known = facts.fact(self._db, "secret")
            return known or facts.set_fact(self._db, "secret", secrets.token_hex(32))

        return bytes.fromhex(await self._writer.write(work))

    async def open_logs(self, trajectories: Collection[str] | None = None) -> dict[str, OpenLog]:
        """The newest attempt of each trajectory whose group is not complete, with all events that
        were appended before. trajectories: the only ones to look for."""
        return await self._writer.write(lambda: self._logs.read_open(trajectories))

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
        """Stores a complete group with the next group commit. Returns its sequence number. Raises
        JournalFull, and then nothing is stored.

        turned_away: the group is never offered, its position is finished, and its bytes are kept
        only with history "all".

        attempts: those that the members are records of, in the same order. Blobs of their events
        become the group's, in addition to `blobs`.
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
        """Records that the task at a position cannot be run: the position counts as finished."""

        def work() -> int:
            cursor = self._db.execute(
                "INSERT INTO skipped VALUES (?, ?) ON CONFLICT DO NOTHING", (position, reason)
            )
            return cursor.rowcount

        def committed(new: int) -> None:
            self._counts = replace(self._counts, skipped=self._counts.skipped + new)

        await self._writer.write(work, committed)

    async def submit(self, tasks: Sequence[SubmittedTask]) -> int:
        """Stores submitted tasks. Returns how many are new. Raises ServiceError for an id that
        another task has, and JournalFull; then nothing is stored."""

        def committed(added: Sequence[str]) -> None:
            new = Counter(added)
            names = self._submitted.keys() | new.keys()
            self._submitted = {name: self._submitted.get(name, 0) + new[name] for name in names}

        added = await self._writer.write(lambda: submitted.add(self._db, tasks), committed)
        return len(added)

    async def submitted_task(self, name: str, number: int) -> bytes:
        """The serialised message of submitted task `number`, which must be below the count."""
        return await self._writer.read(lambda: submitted.read(self._db, name, number))

    async def groups_after(self, sequence: int, limit: int) -> list[StoredGroup]:
        """Groups with a higher number that were not dropped, in order, at most `limit`.

        Acknowledged groups are gone. Check `counts` first, because their numbers give no error.
        """
        return await self._writer.read(lambda: groups.after(self._db, sequence, limit))

    async def add_evaluated(
        self, identity: str, settings: str, trajectory: bytes, *, keep: int
    ) -> tuple[int, int]:
        """Stores the trajectory of an evaluation row, and keeps the newest `keep` of them. A row of
        the same settings that is held stays. A full disk delays it. Returns the last number, and
        how many trajectories were deleted."""

        def work() -> tuple[int, int]:
            return evaluated.add(self._db, identity, settings, trajectory, keep=keep)

        while True:
            try:
                return await self._writer.write_soon(work, lambda _: None)
            except JournalFull:
                await asyncio.sleep(FULL_PAUSE_S)

    async def evaluated_after(self, sequence: int, limit: int) -> list[StoredGroup]:
        """Groups of the evaluation lane with a higher number, in order, at most `limit`."""
        return await self._writer.read(lambda: evaluated.after(self._db, sequence, limit))

    async def last_evaluated(self) -> int:
        """The highest number of the evaluation lane; 0 without one."""
        return await self._writer.read(lambda: evaluated.last(self._db))

    async def acknowledge_evaluated(self, sequence: int) -> int:
        """Raises the evaluation lane's durable mark, and deletes what is below. Returns the
        mark."""

        def work() -> int:
            mark = max(sequence, facts.number(self._db, evaluated.DURABLE))
            facts.set_fact(self._db, evaluated.DURABLE, str(mark))
            evaluated.forget(self._db, mark)
            return mark

        return await self._writer.write(work, frees=True)

    async def batch_progress(self, batch: int) -> tuple[int, int]:
        """Groups that the batch in progress has, and groups discarded for it."""
        return await self._writer.read(lambda: groups.batch_progress(self._db, batch))

    async def drop(self, sequence: int) -> None:
        """Marks a group that is never offered again."""

        def work() -> int:
            if not self._keeps_all:
                journal_blobs.release(self._db, [sequence])
            return groups.drop(self._db, sequence)

        def committed(members: int) -> None:
            waited = members > 0 and sequence > self._counts.durable_sequence
            self._counts = replace(
                self._counts,
                accepted=self._counts.accepted - members,
                waiting=self._counts.waiting - waited,
                dropped_groups=self._counts.dropped_groups + (members > 0),
            )

        await self._writer.write(work, committed, frees=True)

    async def acknowledge(self, sequence: int) -> int:
        """Raises the durable mark and never lowers it. Returns the mark."""

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
        """Bytes of a blob of a group or open attempt; None once nothing needs it."""
        return await self._writer.read(lambda: journal_blobs.read(self._db, sha256))

    async def calls_of(self, attempt: str) -> int:
        """Number of model calls in the record of an attempt whose group is stored, else 0."""
        data = await self._writer.read(lambda: groups.member_of(self._db, attempt))
        if data is None:
            return 0
        return wire.trajectory_from_proto(trajectory_pb2.Trajectory.FromString(data)).turns

    async def finished_positions(self) -> set[int]:
        """Source positions whose group is complete, with any fate, or was skipped."""
        return await self._writer.read(lambda: groups.positions(self._db))

    async def kept_positions(self) -> list[int]:
        """Source positions of the groups that were not discarded."""
        return await self._writer.read(lambda: groups.kept_positions(self._db))

    async def add_learner(self, learner: str) -> None:
        """Records a claim. It is durable, and among `learners`, when this returns."""

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
        """Records a publish, and the fork if it opens a lineage. Flushes `path` before. Raises
        PublishFailed if its disk refuses that."""
        await asyncio.to_thread(flush_folder, path)
        await self._writer.write(lambda: facts.add_version(self._db, version, path, parent))

    async def set_given(self, version: WeightVersion) -> None:
        """Records that samplers may get `version` before it has a folder."""
        await self._writer.write(lambda: facts.set_fact(self._db, "given", str(version)))

    async def given(self) -> WeightVersion | None:
        """The version that `set_given` recorded last."""
        found = await self._writer.read(lambda: facts.fact(self._db, "given"))
        return None if found is None else WeightVersion.parse(found)

    async def newest_version(self) -> tuple[WeightVersion, Path] | None:
        """The version published last, and its folder; None in a new journal."""
        return await self._writer.read(lambda: facts.newest_version(self._db))

    async def first_lineage(self) -> str:
        """The lineage that the run began with, "" in a new journal."""
        return await self._writer.read(lambda: facts.first_lineage(self._db))

    async def forks(self) -> dict[str, WeightVersion]:
        """By lineage, the version of the parent that it left."""
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
        """Deletes bytes of acknowledged groups, and events that are no longer needed."""
        more = self._forget_acknowledged(self._counts.durable_sequence)
        return self._logs.sweep() or more

    def _shrink(self) -> bool:
        """Gives free pages back. Not in a transaction, since only a script steps through all of
        them."""
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        if free <= SPARE_PAGES:
            return False
        self._db.executescript(f"PRAGMA incremental_vacuum({VACUUMED_PAGES})")
        return True
