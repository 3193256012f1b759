"""The journal's one writer: it commits appended events together, and runs jobs.

`append` puts into a buffer and returns. The first entry of an empty buffer wakes the driver. The
driver collects later entries and commits all of them within `GROUP_COMMIT_S` after the first. The
writer's core has no thread: a driver calls `step` when `due` says so. The engine's driver is a
thread (`WriterThread`).

A job runs at once, unless it can wait. Then it goes with the next group commit, so that many jobs
share one commit. The commit itself is most of the cost.

Invariants
- A job that writes commits in one transaction with everything that was appended before it.
- If one of the jobs in a transaction fails, only its own work is undone.
- Appended events stay in the buffer until a transaction with them has committed. If the disk has no
  room, `full` says so and the transaction is tried again every `RETRY_S` until it fits.
- Only one caller at a time calls `step`; everything else may run beside it.
- The buffer holds at most the events of attempts in flight. Giving up an attempt or completing its
  group removes its events, and the limits of a trajectory bound each of them.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog

from engine.serving.journal.jobs import Job, JournalDamaged, JournalFull, code_of, no_room
from engine.serving.journal.logs import LogEntry, Logs
from toolwright.process.daemon import start_daemon

log = structlog.get_logger("journal")

GROUP_COMMIT_S = 0.05
"""Time after which an appended event is durable, unless one commit alone takes longer."""
SHORTEST_WAIT_S = 0.01
RETRY_S = 0.5
"""Interval between two tries on a full disk."""
TIDY_S = 0.5
"""Interval between two steps of tidying; each step is one bounded transaction."""

Result = TypeVar("Result")


class Driver(Protocol):
    """Calls `Writer.step` whenever `Writer.due` says so, until that returns False, then `end`."""

    def start(self) -> None: ...

    def wake(self) -> None:
        """Called when `Writer.due` may have become less, with the writer's lock held."""
        ...

    async def ended(self) -> None:
        """Returns after `Writer.end`."""
        ...


Drive = Callable[["Writer"], Driver]


class WriterThread:
    """The driver of an engine: a thread, so that no commit stops the event loop."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._changed = threading.Condition(writer.lock)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = start_daemon(self._work, "journal")

    def wake(self) -> None:
        self._changed.notify()

    async def ended(self) -> None:
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        writer = self._writer
        try:
            while True:
                with self._changed:
                    while (wait := writer.due()) > 0:
                        self._changed.wait(None if wait == math.inf else wait)
                if not writer.step():
                    break
        finally:
            writer.end()


class Writer:
    """The buffer, the jobs and their transactions."""

    def __init__(
        self,
        db: sqlite3.Connection,
        file: Path,
        logs: Logs,
        *,
        tidy: Callable[[], bool],
        shrink: Callable[[], bool],
        drive: Drive | None = None,
    ) -> None:
        """tidy, shrink: one bounded step of work that can wait, the first inside a transaction.
        They return whether there is more. drive: makes the driver; None = a thread."""
        self.db = db
        """The connection, which only the driver uses after `start`."""
        self._file = file
        self._logs = logs
        self._tidy = tidy
        self._shrink = shrink
        self.lock = threading.Lock()
        self._buffer: list[LogEntry] = []
        self._jobs: deque[Job] = deque()
        self._waiting: list[Job] = []
        """Jobs for the next transaction, however it begins."""
        self._commit_at = math.inf
        self._tidy_at = math.inf
        self._closing = False
        self._commit_s = 0.0
        self.commits = 0
        """Number of transactions; each flushes the disk once."""
        self.full = False
        self._driver = (drive or WriterThread)(self)

    def start(self) -> None:
        """Hands the database to the driver."""
        self._driver.start()

    @property
    def backlog(self) -> int:
        """Number of appends and rows that are not durable yet."""
        return len(self._buffer) + self._logs.staged

    @property
    def commit_s(self) -> float:
        """Duration of the last transaction, in seconds."""
        return self._commit_s

    def append(self, entry: LogEntry) -> None:
        """Adds an entry and returns at once; it is durable within `GROUP_COMMIT_S`. Must not be
        called after the end."""
        with self.lock:
            if self._closing:
                return
            self._buffer.append(entry)
            self._commit_soon()

    def tidy_soon(self) -> None:
        """Announces work for `tidy`. Called by the driver, or before it starts."""
        self._tidy_at = min(self._tidy_at, time.monotonic() + TIDY_S)

    async def write(
        self,
        work: Callable[[], Result],
        committed: Callable[[Result], None] = lambda _: None,
        *,
        frees: bool = False,
    ) -> Result:
        """Runs `work` in a transaction with all earlier appends, then `committed`. Raises
        JournalFull, and then nothing of `work` is stored.

        frees: if there is no room for both, run `work` alone, because it makes room.
        """
        return await self._submit(work, committed, writes=True, frees=frees)

    async def write_soon(
        self, work: Callable[[], Result], committed: Callable[[Result], None]
    ) -> Result:
        """As `write`, with the next group commit."""
        future: Future[Result] = Future()
        with self.lock:
            self._refuse_closed()
            self._waiting.append(Job(work, committed, future, writes=True, frees=False))
            self._commit_soon()
        return await asyncio.wrap_future(future)

    async def commit_now(self) -> None:
        """Returns when everything that was appended before is durable. Callers that come while a
        transaction runs share the next one. Raises JournalFull if there is no room."""
        future: Future[None] = Future()
        with self.lock:
            self._refuse_closed()
            self._waiting.append(
                Job(lambda: None, lambda _: None, future, writes=True, frees=False)
            )
            self._commit_at = min(self._commit_at, time.monotonic())
            self._driver.wake()
        await asyncio.wrap_future(future)

    async def read(self, work: Callable[[], Result]) -> Result:
        """Runs `work`, which only reads durable data."""
        return await self._submit(work, lambda _: None, writes=False, frees=False)

    async def close(self) -> None:
        """Commits the remaining events, as far as there is room, and ends the driver."""
        with self.lock:
            self._closing = True
            self._driver.wake()
        await self._driver.ended()

    async def _submit(
        self,
        work: Callable[[], Result],
        committed: Callable[[Result], None],
        *,
        writes: bool,
        frees: bool,
    ) -> Result:
        future: Future[Result] = Future()
        with self.lock:
            self._refuse_closed()
            self._jobs.append(Job(work, committed, future, writes, frees))
            self._driver.wake()
        return await asyncio.wrap_future(future)

    def _refuse_closed(self) -> None:
        if self._closing:
            raise RuntimeError(f"the journal {self._file} is closed")

    def _commit_soon(self) -> None:
        if self._commit_at == math.inf:
            wait = max(SHORTEST_WAIT_S, GROUP_COMMIT_S - self._commit_s)
            self._commit_at = time.monotonic() + wait
            self._driver.wake()

    def due(self) -> float:
        """Seconds until `step` has work; inf: not before the next `wake`. Call it with `lock`."""
        if self._jobs or self._closing:
            return 0.0
        return max(0.0, min(self._commit_at, self._tidy_at) - time.monotonic())

    def step(self, most: int | None = None, *, early: bool = False) -> bool:
        """Runs one job, or the due work without a job. Returns False after the last step of a
        closed writer; then the driver calls `end`. most: most appends in a transaction without a
        job; later ones wait for the next. early: appended events are due now."""
        with self.lock:
            job = self._jobs.popleft() if self._jobs else None
        if job is not None:
            self._run(job)
            return True
        if not self._closing:
            self._round(most, early=early)
            return True
        self._round(None, early=True)
        if self._logs.staged:
            log.error("events_lost", file=str(self._file), reason="the disk had no room at the end")
        return False

    def end(self) -> None:
        """Refuses the remaining jobs and closes the database."""
        with self.lock:
            self._closing = True
            left = [*self._jobs, *self._waiting]
            self._jobs.clear()
            self._waiting.clear()
        for job in left:
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(RuntimeError(f"the journal {self._file} is closed"))
        self.db.close()

    def _run(self, job: Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        try:
            result = self._result(job)
        except Exception as error:  # noqa: BLE001 (handed to the caller)
            self._settle(job, None, error)
        else:
            self._settle(job, result, None)

    def _result(self, job: Job) -> Any:
        if not job.writes:
            return job.work()
        try:
            return self._transact(job.work)
        except JournalFull:
            if not job.frees:
                raise
            return self._transact(job.work, staged=False)

    def _round(self, most: int | None, *, early: bool) -> None:
        """Runs the due work without a job: the buffer, a check for room, tidying."""
        now = time.monotonic()
        try:
            if early or now >= self._commit_at:
                self._transact(self._probe if self.full else lambda: None, most=most)
            if now >= self._tidy_at:
                self._tidy_at = math.inf
                more = True
                try:
                    # On a full disk tidying goes first: it makes room for the staged rows.
                    more = self._transact(self._tidy, staged=not self.full) | self._shrink()
                finally:
                    if more:
                        self.tidy_soon()
        except JournalFull:
            pass  # `full` says so, and the next try has its time
        except sqlite3.Error as error:
            log.warning("journal_not_written", file=str(self._file), error=str(error))
            self._try_again(RETRY_S)

    def _transact(
        self, work: Callable[[], Any], *, staged: bool = True, most: int | None = None
    ) -> Any:
        began = time.monotonic()
        jobs: list[Job] = []
        if staged:
            with self.lock:
                waiting, self._waiting = self._waiting, []
                # A job commits with everything that was appended before it.
                end = len(self._buffer) if most is None or waiting else most
                taken, self._buffer = self._buffer[:end], self._buffer[end:]
                self._commit_at = math.inf
                if self._buffer:
                    self._commit_soon()
            self._logs.stage(taken)
            jobs = [job for job in waiting if job.future.set_running_or_notify_cancel()]
        try:
            self.db.execute("BEGIN IMMEDIATE")
            if staged:
                self._logs.write()
            results = [self._in_savepoint(job.work) for job in jobs]
            result, refused = self._in_savepoint(work)
            self.db.execute("COMMIT")
            self.commits += 1
        except BaseException as error:
            self._rolled_back(error)
            found = JournalFull(self._file) if no_room(error) else error
            for job in jobs:
                job.future.set_exception(self._named(found))
            if found is error:
                raise
            raise found from error
        if staged:
            self._logs.written()
            if self.full:
                log.info("disk_has_room", file=str(self._file))
            self.full = False
            self._commit_s = time.monotonic() - began
        for job, (value, failed) in zip(jobs, results, strict=True):
            self._settle(job, value, failed)
        if refused is not None:
            raise refused
        return result

    def _in_savepoint(self, work: Callable[[], Any]) -> tuple[Any, Exception | None]:
        """Runs work inside a transaction. Returns its value, or its error. A full disk ends the
        transaction."""
        self.db.execute("SAVEPOINT job")
        try:
            value, failed = work(), None
        except Exception as error:
            if no_room(error) or not self.db.in_transaction:
                raise
            value, failed = None, error
            self.db.execute("ROLLBACK TO job")
        self.db.execute("RELEASE job")
        return value, failed

    def _settle(self, job: Job, value: Any, failed: Exception | None) -> None:
        """Finishes a job after the commit."""
        try:
            if failed is None:
                job.committed(value)
        except Exception as error:  # noqa: BLE001 (handed to the caller)
            failed = error
        if failed is None:
            job.future.set_result(value)
        else:
            job.future.set_exception(self._named(failed))

    def _rolled_back(self, error: BaseException) -> None:
        if self.db.in_transaction:  # SQLite itself rolls back on a full disk
            with suppress(sqlite3.Error):
                self.db.execute("ROLLBACK")
        if no_room(error):
            if not self.full:
                log.warning("disk_full", file=str(self._file), fix="free space; the run goes on")
            self.full = True
            with suppress(sqlite3.Error):  # the write-ahead log may start over in its own space
                self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            self._try_again(RETRY_S)
        elif self._logs.staged:
            self._try_again(0.0)

    def _try_again(self, seconds: float) -> None:
        with self.lock:
            self._commit_at = time.monotonic() + seconds

    def _probe(self) -> None:
        self.db.execute("INSERT OR REPLACE INTO facts VALUES ('probe', ?)", (str(time.time()),))

    def _named(self, error: BaseException) -> BaseException:
        if code_of(error) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return error
        return JournalDamaged(
            f"the journal {self._file} is damaged ({error}): stop, keep a copy, and restore it or "
            "open a new run with `engine serve RECIPE --fork RUN`"
        )
