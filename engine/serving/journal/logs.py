"""The journal's logs: the events of attempts, one row per attempt and commit.

Events are staged (encoded), then written in the next transaction. They stay staged until that
transaction has committed. One statement handles many rows: between two statements the writer's
thread releases the interpreter and waits until the event loop returns it.

Invariants
- Events of one `append` are in one row: a crash leaves all of them or none.
- The rows of an attempt, in the order of their numbers, are its events in the order of appending.
- With `keep_all` nothing is deleted. Without it a log lives until its attempt is given up or its
  group is complete.
"""

from __future__ import annotations

import json
import sqlite3
import time
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import msgspec
import structlog

from engine.core.images.media import Media
from engine.core.trajectory.events import AnyEvent, Ended, decode, encode
from engine.serving.journal import blobs as journal_blobs
from toolwright.reading.sqlite_files import typed_rows

log = structlog.get_logger("journal")

Row = TypeVar("Row")

ROWS_A_STATEMENT = 256
SWEPT_ROWS = 4_096
"""Rows that are deleted in one transaction."""
SCATTERED_ROWS = 65_536
"""Most unneeded rows that stay because an older row is needed: some 30 MB. Deleting whole pages at
the front of the table costs nearly nothing; deleting rows between others rewrites their pages."""
LOGS_A_STEP = 64
"""Logs that are deleted in one step of tidying."""
ENCODED_AT_ONCE = 64
"""Attempts that are encoded before the event loop gets the interpreter: about 0.3 ms."""
_UNLOGGED = 0
"""Number of an attempt with an event that cannot be encoded: it has no log."""


class LogState(IntEnum):
    """State of an attempt's log."""

    OPEN = 0
    GIVEN_UP = 1
    COMPLETE = 2
    """Its group is complete and holds the attempt's record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLog:
    """The durable part of an attempt whose group is not complete."""

    attempt: str
    events: list[AnyEvent]

    @property
    def ended(self) -> bool:
        """Whether the attempt is over, and at most its score and its group are missing."""
        return any(isinstance(event, Ended) for event in self.events)


class LogEntry(msgspec.Struct, frozen=True):
    """One append to the journal; `events` None = the attempt is given up, bytes = a whole row that
    another process encoded."""

    attempt: str
    events: Sequence[AnyEvent] | bytes | None
    blobs: Sequence[Media] = ()


class Logs:
    """The logs of one journal. Only the writer's thread uses them.

    No index leads from a log to its rows: keeping one would touch as many pages in every commit as
    there are attempts in flight. Instead the numbers of the rows are in memory.
    """

    def __init__(self, db: sqlite3.Connection, *, keep_all: bool) -> None:
        self._db = db
        self._keep_all = keep_all
        self._numbers: dict[str, int] = {}
        self._batches: dict[int, array[int]] = {}
        self._dead: list[int] = []
        self._any_kept = not keep_all
        """Whether an earlier life may have kept logs that this one does not keep."""
        self._last_log, self._last_batch = self._scan()
        self._new: dict[int, tuple[object, ...]] = {}
        self._rows: list[tuple[int, int, bytes]] = []
        self._blobs: list[tuple[int, Sequence[Media]]] = []
        self._given_up: list[int] = []

    def _scan(self) -> tuple[int, int]:
        """Finds the rows of open logs, and rows that a crash left unswept."""
        db = self._db
        rows = db.execute("SELECT attempt, log, first FROM logs WHERE state = ?", (LogState.OPEN,))
        first = 0 if not self._keep_all else None
        for attempt, number, begins in rows:
            self._numbers[attempt], self._batches[number] = number, array("q")
            first = begins if first is None else min(first, begins)
        last_log, last_batch = db.execute(
            "SELECT (SELECT coalesce(max(log), 0) FROM logs),"
            " (SELECT coalesce(max(batch), 0) FROM events)"
        ).fetchone()
        if first is None:
            return last_log, last_batch
        kept = {number for (number,) in db.execute("SELECT log FROM logs WHERE state != 0")}
        for batch, number in db.execute(
            "SELECT batch, log FROM events WHERE batch >= ? ORDER BY batch", (first,)
        ):
            last_log = max(last_log, number)
            if number in self._batches:
                self._batches[number].append(batch)
            elif number not in kept:
                self._dead.append(batch)
        return last_log, last_batch

    @property
    def staged(self) -> int:
        """Number of rows and marks that wait for a transaction."""
        return len(self._rows) + len(self._blobs) + len(self._given_up)

    def stage(self, appended: Iterable[LogEntry]) -> None:
        """Encodes events; the events of one attempt become one row."""
        together: dict[str, list[AnyEvent]] = {}
        for one in appended:
            if one.events is None:
                self._encode(together)
                together = {}
                self._forget(one.attempt)
                continue
            if isinstance(one.events, bytes):
                self._encode(together)
                together = {}
                self._add_row(self._number(one.attempt), one.events)
            else:
                together.setdefault(one.attempt, []).extend(one.events)
            if one.blobs:
                self._blobs.append((self._number(one.attempt), one.blobs))
        self._encode(together)

    def write(self) -> None:
        """Writes what is staged, inside a transaction."""
        _insert(self._db, "logs", list(self._new.values()))
        _insert(self._db, "events", self._rows)
        for number, media in self._blobs:
            journal_blobs.add_to_log(self._db, number, media)
        if self._given_up:
            self._drop(self._given_up)

    def written(self) -> None:
        """Drops staged rows after their transaction has committed."""
        for number in self._given_up:
            self._bury(number)
        for staged in (self._new, self._rows, self._blobs, self._given_up):
            staged.clear()

    def complete(self, sequence: int, attempts: Sequence[str]) -> list[str]:
        """Inside the group's transaction: deletes or marks its members' logs. Returns the attempts
        to pass to `completed` after the commit."""
        trajectories = [trajectory_of(attempt) for attempt in attempts]
        found = self._db.execute(
            "SELECT log, attempt FROM logs"
            f" WHERE trajectory IN ({_marks(trajectories)}) AND state = ?",
            (*trajectories, LogState.OPEN),
        ).fetchall()
        numbers = [number for number, _ in found]
        if numbers:
            journal_blobs.transfer(self._db, numbers, sequence)
            last = {number for number, attempt in found if attempt in attempts}
            self._drop([number for number in numbers if number not in last])
            self._drop(sorted(last), LogState.COMPLETE)
        return [*attempts, *(attempt for _, attempt in found)]

    def completed(self, attempts: Iterable[str]) -> None:
        """Called after the commit of `complete`'s transaction."""
        for attempt in attempts:
            self._bury(self._numbers.pop(attempt, _UNLOGGED))

    def read_open(self, trajectories: Collection[str] | None = None) -> dict[str, OpenLog]:
        """The newest attempt of each trajectory whose group is not complete. trajectories: the only
        ones to look for.

        An attempt with an unreadable row is given up: its trajectory is not in the answer.
        """
        newest: dict[str, tuple[int, str]] = {
            trajectory: (number, attempt)
            for number, trajectory, attempt in self._db.execute(
                "SELECT log, trajectory, attempt FROM logs WHERE state = ? ORDER BY log",
                (LogState.OPEN,),
            )
            if trajectories is None or trajectory in trajectories
        }
        events: dict[int, list[AnyEvent]] = {number: [] for number, _ in newest.values()}
        damaged: set[int] = set()
        for number, data in self._rows_of(events):
            if number in damaged:
                continue
            try:
                events[number].extend(decode(data))
            except (ValueError, TypeError) as error:
                damaged.add(number)
                log.warning("log_unreadable", log=number, error=str(error))
        found = {}
        for trajectory, (number, attempt) in newest.items():
            if number in damaged:
                log.warning("trajectory_starts_again", attempt=attempt)
                self._drop([number])
                self._bury(self._numbers.pop(attempt, _UNLOGGED))
            elif events[number]:
                found[trajectory] = OpenLog(attempt=attempt, events=events[number])
        return found

    def _rows_of(self, numbers: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """The written rows of open logs, those of each log in order."""
        wanted = sorted(batch for number in numbers for batch in self._batches[number])
        for batches in _pieces(wanted):
            yield from self._db.execute(
                f"SELECT log, data FROM events WHERE batch IN ({_marks(batches)}) ORDER BY batch",
                batches,
            )

    def sweep(self) -> bool:
        """Inside a transaction: deletes some unneeded rows. Returns whether more can be deleted
        now. `_scan` finds rows that a crash or a full disk leaves."""
        if self._keep_all:
            return False
        self._any_kept = self._any_kept and self._forget_kept()
        if self._any_kept:
            return True
        self._dead.sort()
        needed = min((batches[0] for batches in self._batches.values() if batches), default=None)
        front = len(self._dead) if needed is None else bisect_left(self._dead, needed)
        if front:
            count = min(front, SWEPT_ROWS)
            self._db.execute("DELETE FROM events WHERE batch <= ?", (self._dead[count - 1],))
            del self._dead[:count]
            return front > SWEPT_ROWS
        if len(self._dead) <= SCATTERED_ROWS:
            return False
        some, self._dead = self._dead[:SWEPT_ROWS], self._dead[SWEPT_ROWS:]
        for batches in _pieces(some):
            self._db.execute(f"DELETE FROM events WHERE batch IN ({_marks(batches)})", batches)
        return len(self._dead) > SCATTERED_ROWS

    def _forget_kept(self) -> bool:
        """Deletes some logs that an earlier life kept. False if there were no such logs."""
        kept = self._db.execute(
            "SELECT log, batches FROM logs WHERE state != ? LIMIT ?", (LogState.OPEN, LOGS_A_STEP)
        ).fetchall()
        for number, batches in kept:
            self._batches[number] = array("q", json.loads(batches))
            self._drop([number])
            self._bury(number)
        return bool(kept)

    def _encode(self, together: dict[str, list[AnyEvent]]) -> None:
        for count, (attempt, events) in enumerate(together.items(), 1):
            number = self._number(attempt)
            if number == _UNLOGGED:
                continue
            try:
                data = encode(events)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                log.warning("attempt_not_logged", attempt=attempt, error=repr(error))
                self._forget(attempt)
                self._numbers[attempt] = _UNLOGGED
            else:
                self._add_row(number, data)
            if count % ENCODED_AT_ONCE == 0:
                time.sleep(0)

    def _add_row(self, number: int, data: bytes) -> None:
        self._last_batch += 1
        self._rows.append((self._last_batch, number, data))
        self._batches[number].append(self._last_batch)

    def _number(self, attempt: str) -> int:
        number = self._numbers.get(attempt)
        if number is None:
            self._last_log += 1
            number = self._numbers[attempt] = self._last_log
            self._batches[number] = array("q")
            named = (number, trajectory_of(attempt), attempt)
            rest = (int(LogState.OPEN), time.time(), self._last_batch + 1, None)
            self._new[number] = (*named, *rest)
        return number

    def _forget(self, attempt: str) -> None:
        number = self._numbers.pop(attempt, _UNLOGGED)
        if number == _UNLOGGED:
            return
        if not self._keep_all:
            self._rows = [row for row in self._rows if row[1] != number]
            self._blobs = [one for one in self._blobs if one[0] != number]
            if self._new.pop(number, None) is not None:
                del self._batches[number]
                return
        self._given_up.append(number)

    def _drop(self, numbers: Sequence[int], state: LogState = LogState.GIVEN_UP) -> None:
        """Inside a transaction: deletes logs, or marks them if they are kept."""
        if not numbers:
            return
        journal_blobs.release_log(self._db, numbers)
        if self._keep_all:
            self._db.executemany(
                "UPDATE logs SET state = ?, batches = ? WHERE log = ?",
                [(state, json.dumps(list(self._batches[number])), number) for number in numbers],
            )
        else:
            self._db.execute(f"DELETE FROM logs WHERE log IN ({_marks(numbers)})", numbers)

    def _bury(self, number: int) -> None:
        """After the commit: marks the rows of a deleted log for the sweep."""
        batches = self._batches.pop(number, None)
        if batches and not self._keep_all:
            self._dead.extend(batches)


def trajectory_of(attempt: str) -> str:
    """'g0000012-3' of 'g0000012-3/b1r0a0'."""
    return attempt.rpartition("/")[0] or attempt


def read_log(db: sqlite3.Connection, attempt: str) -> list[AnyEvent]:
    """All events of one attempt; empty without a log. Raises ValueError for an unreadable log."""
    found = db.execute(
        # By its trajectory, which has an index: a run's logs are read one after the other.
        "SELECT log, first, batches FROM logs WHERE trajectory = ? AND attempt = ?",
        (trajectory_of(attempt), attempt),
    )
    row = next(typed_rows(found, int, int, str | None), None)
    if row is None:
        return []
    number, first, kept = row
    if kept is None:
        logged = db.execute(
            "SELECT data FROM events WHERE batch >= ? AND log = ? ORDER BY batch", (first, number)
        ).fetchall()
    else:
        batches = _batches(kept)
        logged = db.execute(
            f"SELECT data FROM events WHERE batch IN ({_marks(batches)}) ORDER BY batch", batches
        ).fetchall()
    return [event for (data,) in typed_rows(logged, bytes) for event in decode(data)]


def _batches(text: str) -> list[int]:
    """Numbers of rows. Raises ValueError for anything else."""
    try:
        found = msgspec.json.decode(text, type=list[int])
    except msgspec.DecodeError as error:
        raise ValueError(f"its rows are not numbers: {error}") from error
    if any(not 0 <= number < 1 << 63 for number in found):
        raise ValueError("its rows have numbers that no journal has")
    return found


def _insert(db: sqlite3.Connection, into: str, rows: Sequence[tuple[object, ...]]) -> None:
    for some in _pieces(rows):
        one = f"({_marks(some[0])})"
        db.execute(
            f"INSERT INTO {into} VALUES {', '.join([one] * len(some))}",
            [value for row in some for value in row],
        )


def _pieces(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Pieces whose sizes are powers of two, so that few statements have to be prepared."""
    start = 0
    while start < len(rows):
        size = min(ROWS_A_STATEMENT, 1 << ((len(rows) - start).bit_length() - 1))
        yield rows[start : start + size]
        start += size


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
