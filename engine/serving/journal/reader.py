"""Reads a run's journal without changing it, also while an engine serves the run."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from engine.core.trajectory.events import AnyEvent, Forked
from engine.core.trajectory.log import whole_log
from engine.errors import StartupError
from engine.serving.journal import facts, groups
from engine.serving.journal.groups import Fate, GroupCounts
from engine.serving.journal.logs import LogState, read_log, trajectory_of
from engine.serving.journal.schema import (
    FILE_NAME,
    engine_lives,
    open_read_only,
    unusable,
)
from toolwright.common.v1 import trajectory_pb2
from toolwright.reading.sqlite_files import REAL, typed_rows
from toolwright.types import Trajectory, WeightVersion
from toolwright.wire import trajectory_from_proto

NAMES = 100_000
"""Most names that are compared with an unknown name, to suggest a similar one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAttempt:
    """A log: `name` is trajectory id / attempt."""

    name: str
    state: LogState
    age_s: float
    """Seconds since its first commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A member of a complete group, as it is offered or would be."""

    attempt: str
    group: str
    sequence: int
    fate: Fate
    data: bytes

    def trajectory(self) -> Trajectory:
        """The record. Raises StartupError if its bytes are damaged, or no engine wrote them."""
        try:
            return trajectory_from_proto(trajectory_pb2.Trajectory.FromString(self.data))
        except (DecodeError, ValueError, TypeError, LookupError, ArithmeticError) as error:
            raise StartupError(
                f"the journal's record of {self.attempt} cannot be read ({error}): restore the file"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedGroup:
    """A complete group without its records."""

    position: int
    id: str
    sequence: int
    fate: Fate
    hash: str
    """Hash of its members' bytes as stored."""


@contextmanager
def reading(run_folder: Path) -> Iterator[JournalReader]:
    """A reader for one command. Raises StartupError also if the file turns out to be damaged."""
    reader = JournalReader(run_folder)
    try:
        yield reader
    except sqlite3.Error as error:
        raise unusable(run_folder / FILE_NAME, error) from error
    finally:
        reader.close()


class JournalReader:
    """Reader of a journal. Each method reads what is durable at that moment."""

    def __init__(self, run_folder: Path) -> None:
        """Raises StartupError if there is no journal that this engine can read."""
        self._file = run_folder / FILE_NAME
        if not self._file.exists():
            raise StartupError(f"no run in {run_folder}: there is no {FILE_NAME}")
        try:
            self._db = open_read_only(self._file)
        except sqlite3.Error as error:
            raise unusable(self._file, error) from error

    def close(self) -> None:
        self._db.close()

    @property
    def engine_lives(self) -> bool:
        """Whether an engine serves this run now."""
        return engine_lives(self._file)

    @property
    def owner(self) -> str:
        """The word that marks the run's traces and tool sessions."""
        return facts.fact(self._db, "owner") or ""

    def counts(self) -> GroupCounts:
        return groups.count(self._db, facts.number(self._db, "durable"))

    def version(self) -> tuple[WeightVersion, Path] | None:
        """The version published last, and its folder."""
        return facts.newest_version(self._db)

    def numbered(self) -> list[NumberedGroup]:
        """All groups that were ever stored, in order, including groups without records."""
        found = self._db.execute(
            "SELECT position, id, sequence, dropped, hash FROM groups ORDER BY sequence"
        )
        return [
            NumberedGroup(position=position, id=identity, sequence=sequence, fate=fate, hash=digest)
            for position, identity, sequence, fate, digest in typed_rows(
                found, int, str, int, Fate, str
            )
        ]

    def skipped(self) -> list[tuple[int, str]]:
        """Positions whose task cannot be run, with the reason."""
        found = self._db.execute("SELECT position, reason FROM skipped ORDER BY position")
        return [(position, reason) for position, reason in typed_rows(found, int, str)]

    def attempts(self, *states: LogState, trajectory: str | None = None) -> list[LoggedAttempt]:
        """Logs in these states, of all trajectories or one, oldest first."""
        now = time.time()
        wanted = ", ".join("?" * len(states))
        found = self._db.execute(
            f"SELECT attempt, state, opened_at FROM logs WHERE state IN ({wanted})"
            " AND (? IS NULL OR trajectory = ?) ORDER BY log",
            (*states, trajectory, trajectory),
        )
        return [
            LoggedAttempt(name=name, state=state, age_s=max(0.0, now - opened))
            for name, state, opened in typed_rows(found, str, LogState, REAL)
        ]

    def open_logs(self) -> list[tuple[LoggedAttempt, list[bytes]]]:
        """Attempts whose group is not complete, with their rows for `decode`: one scan for all."""
        attempts = self.attempts(LogState.OPEN)
        logged: dict[str, list[bytes]] = {one.name: [] for one in attempts}
        found = self._db.execute(
            "SELECT attempt, data FROM events JOIN logs USING (log)"
            " WHERE batch >= (SELECT min(first) FROM logs WHERE state = :open) AND state = :open"
            " ORDER BY batch",
            {"open": LogState.OPEN},
        )
        for name, data in typed_rows(found, str, bytes):
            if name in logged:
                logged[name].append(data)
        return [(one, logged[one.name]) for one in attempts]

    def log(self, attempt: str) -> list[AnyEvent]:
        """All events of an attempt. For a branch they include its parents' events before the fork.
        Raises ValueError for an unreadable log."""
        events = read_log(self._db, attempt)
        parents: dict[str, list[AnyEvent]] = {}
        newest = events
        while newest and isinstance(newest[0], Forked) and newest[0].parent not in parents:
            name = newest[0].parent
            newest = parents[name] = read_log(self._db, name)
        return whole_log(events, parents)

    def groups(self) -> Iterator[list[StoredRecord]]:
        """Groups with records, in order."""
        numbers = "SELECT DISTINCT sequence FROM members ORDER BY sequence"
        for (sequence,) in typed_rows(self._db.execute(numbers).fetchall(), int):
            yield self._records("sequence = ?", sequence)

    def record(self, trajectory: str) -> StoredRecord | None:
        """The record of one trajectory; None if it is not held."""
        group = trajectory.rpartition("-")[0]
        found = [
            one
            for one in self._records("groups.id = ?", group)
            if trajectory_of(one.attempt) == trajectory
        ]
        return found[-1] if found else None

    def was_delivered(self, trajectory: str) -> bool:
        """Whether its group was acknowledged: the journal may have deleted it."""
        durable = facts.number(self._db, "durable")
        row = self._db.execute(
            "SELECT 1 FROM groups WHERE id = ? AND sequence <= ?",
            (trajectory.rpartition("-")[0], durable),
        ).fetchone()
        return row is not None

    def was_turned_away(self, trajectory: str) -> bool:
        """Whether its group was discarded."""
        row = self._db.execute(
            "SELECT 1 FROM groups WHERE id = ? AND dropped = ?",
            (trajectory.rpartition("-")[0], Fate.TURNED_AWAY),
        ).fetchone()
        return row is not None

    def trajectories(self) -> list[str]:
        """Names of the newest trajectories with a log or record."""
        logged = self._db.execute(
            "SELECT DISTINCT trajectory FROM logs ORDER BY log DESC LIMIT ?", (NAMES,)
        ).fetchall()
        members = self._db.execute(
            "SELECT attempt FROM members ORDER BY sequence DESC LIMIT ?", (NAMES,)
        )
        names = [
            *(name for (name,) in typed_rows(logged, str)),
            *(trajectory_of(name) for (name,) in typed_rows(members, str)),
        ]
        return list(dict.fromkeys(names))

    def _records(self, where: str, value: object) -> list[StoredRecord]:
        found = self._db.execute(
            "SELECT attempt, groups.id, sequence, dropped, trajectory"
            f" FROM groups JOIN members USING (sequence) WHERE {where} ORDER BY sequence, number",
            (value,),
        )
        return [
            StoredRecord(attempt=attempt, group=group, sequence=sequence, fate=fate, data=data)
            for attempt, group, sequence, fate, data in typed_rows(
                found, str, str, int, Fate, bytes
            )
        ]
