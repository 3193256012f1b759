"""The journal's one writer: a thread that commits appended events together, and runs jobs.

`append` puts into a buffer and returns. The first entry of an empty buffer wakes the thread, which
collects what else comes and commits all of it at most `GROUP_COMMIT_S` after that first entry.

A job is done at once, unless it can wait: then it goes with the next group commit, and many of them
cost one. Most of what a commit costs is the commit itself.

Invariants
- A job that writes commits in one transaction with everything that was appended before it.
- Of jobs that share a transaction, one that fails takes nothing back but its own work.
- What was appended stays in the buffer until a transaction with it has committed. Where the disk
  has no room, `full` says so and the same is tried again every `RETRY_S` until it fits.
- The buffer holds at most the events of attempts in flight: whoever gives one up or completes its
  group takes its events out, and the limits of a trajectory bound each.
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
from typing import Any, TypeVar

import structlog

from engine.serving.journal.jobs import Job, JournalDamaged, JournalFull, code_of, no_room
from engine.serving.journal.logs import Appended, Logs

log = structlog.get_logger("journal")

GROUP_COMMIT_S = 0.05
"""An appended event is durable after this time, unless one commit alone takes longer."""
SHORTEST_WAIT_S = 0.01
RETRY_S = 0.5
"""Between two tries on a full disk."""
TIDY_S = 0.5
"""Between two steps of tidying; each is one bounded transaction."""

Result = TypeVar("Result")


class Writer:
    """The thread and its buffer."""

    def __init__(
        self,
        db: sqlite3.Connection,
        file: Path,
        logs: Logs,
        *,
        tidy: Callable[[], bool],
        shrink: Callable[[], bool],
    ) -> None:
        """tidy, shrink: one bounded step of work that can wait, the first inside a transaction;
        return whether there is more."""
        self._db = db
        self._file = file
        self._logs = logs
        self._tidy = tidy
        self._shrink = shrink
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._buffer: list[Appended] = []
        self._jobs: deque[Job] = deque()
        self._waiting: list[Job] = []
        """Jobs for the next transaction, whoever begins it."""
        self._commit_at = math.inf
        self._tidy_at = math.inf
        self._closing = False
        self._commit_s = 0.0
        self.full = False
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)

    def start(self) -> None:
        """From now on the database belongs to the thread."""
        self._thread.start()

    @property
    def backlog(self) -> int:
        """Appends and rows that no transaction has made durable yet."""
        return len(self._buffer) + self._logs.staged

    @property
    def commit_s(self) -> float:
        """Seconds that the last transaction took."""
        return self._commit_s

    def append(self, entry: Appended) -> None:
        """Returns at once; durable within `GROUP_COMMIT_S`. Nothing after the end."""
        with self._lock:
            if self._closing:
                return
            self._buffer.append(entry)
            self._commit_soon()

    def tidy_soon(self) -> None:
        """There is work for `tidy`. Called in the thread, or before it starts."""
        self._tidy_at = min(self._tidy_at, time.monotonic() + TIDY_S)

    async def write(
        self,
        work: Callable[[], Result],
        committed: Callable[[Result], None] = lambda _: None,
        *,
        frees: bool = False,
    ) -> Result:
        """Runs `work` in a transaction with what was appended before, then `committed`.
        JournalFull, and nothing of `work` is stored.

        frees: where there is no room for both, `work` alone, which makes room.
        """
        return await self._submit(work, committed, writes=True, frees=frees)

    async def write_soon(
        self, work: Callable[[], Result], committed: Callable[[Result], None]
    ) -> Result:
        """As `write`, with the next group commit."""
        future: Future[Result] = Future()
        with self._changed:
            self._refuse_closed()
            self._waiting.append(Job(work, committed, future, writes=True, frees=False))
            self._commit_soon()
        return await asyncio.wrap_future(future)

    async def read(self, work: Callable[[], Result]) -> Result:
        """Runs `work`, which only reads what is durable."""
        return await self._submit(work, lambda _: None, writes=False, frees=False)

    async def close(self) -> None:
        """Commits what is left, as far as there is room, and ends the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    async def _submit(
        self,
        work: Callable[[], Result],
        committed: Callable[[Result], None],
        *,
        writes: bool,
        frees: bool,
    ) -> Result:
        future: Future[Result] = Future()
        with self._changed:
            self._refuse_closed()
            self._jobs.append(Job(work, committed, future, writes, frees))
            self._changed.notify()
        return await asyncio.wrap_future(future)

    def _refuse_closed(self) -> None:
        if self._closing:
            raise RuntimeError(f"the journal {self._file} is closed")

    def _commit_soon(self) -> None:
        if self._commit_at == math.inf:
            wait = max(SHORTEST_WAIT_S, GROUP_COMMIT_S - self._commit_s)
            self._commit_at = time.monotonic() + wait
            self._changed.notify()

    def _work(self) -> None:
        try:
            self._serve()
        finally:
            with self._changed:
                self._closing = True
                left = [*self._jobs, *self._waiting]
                self._jobs.clear()
                self._waiting.clear()
            for job in left:
                job.future.set_exception(RuntimeError(f"the journal {self._file} is closed"))
            self._db.close()

    def _serve(self) -> None:
        while True:
            job = self._next()
            if job is not None:
                self._run(job)
            elif self._closing:
                break
            else:
                self._round()
        self._commit_at = 0.0
        self._round()
        if self._logs.staged:
            log.error("events_lost", file=str(self._file), reason="the disk had no room at the end")

    def _next(self) -> Job | None:
        """The next job; None when something is due, or at the end."""
        with self._changed:
            while not self._jobs:
                wait = min(self._commit_at, self._tidy_at) - time.monotonic()
                if self._closing or wait <= 0:
                    return None
                self._changed.wait(None if wait == math.inf else wait)
            return self._jobs.popleft()

    def _run(self, job: Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        try:
            result = self._result(job)
        except Exception as error:  # noqa: BLE001 (handed to the one who waits)
            self._tell(job, None, error)
        else:
            self._tell(job, result, None)

    def _result(self, job: Job) -> Any:
        if not job.writes:
            return job.work()
        try:
            return self._transact(job.work)
        except JournalFull:
            if not job.frees:
                raise
            return self._transact(job.work, staged=False)

    def _round(self) -> None:
        """What is due without a job: the buffer, a look whether there is room again, tidying."""
        now = time.monotonic()
        try:
            if now >= self._commit_at:
                self._transact(self._probe if self.full else lambda: None)
            if now >= self._tidy_at:
                self._tidy_at = math.inf
                more = True
                try:
                    # On a full disk tidying goes first: it makes room for what is staged.
                    more = self._transact(self._tidy, staged=not self.full) | self._shrink()
                finally:
                    if more:
                        self.tidy_soon()
        except JournalFull:
            pass  # `full` says so, and the next try has its time
        except sqlite3.Error as error:
            log.warning("journal_not_written", file=str(self._file), error=str(error))
            self._try_again(RETRY_S)

    def _transact(self, work: Callable[[], Any], *, staged: bool = True) -> Any:
        began = time.monotonic()
        jobs: list[Job] = []
        if staged:
            with self._changed:
                taken, self._buffer = self._buffer, []
                waiting, self._waiting = self._waiting, []
                self._commit_at = math.inf
            self._logs.stage(taken)
            jobs = [job for job in waiting if job.future.set_running_or_notify_cancel()]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            if staged:
                self._logs.write()
            results = [self._apart(job.work) for job in jobs]
            result, refused = self._apart(work)
            self._db.execute("COMMIT")
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
            self._tell(job, value, failed)
        if refused is not None:
            raise refused
        return result

    def _apart(self, work: Callable[[], Any]) -> tuple[Any, Exception | None]:
        """Inside a transaction: what the work returned, or raised. A full disk ends all of it."""
        self._db.execute("SAVEPOINT job")
        try:
            value, failed = work(), None
        except Exception as error:
            if no_room(error) or not self._db.in_transaction:
                raise
            value, failed = None, error
            self._db.execute("ROLLBACK TO job")
        self._db.execute("RELEASE job")
        return value, failed

    def _tell(self, job: Job, value: Any, failed: Exception | None) -> None:
        """After the commit."""
        try:
            if failed is None:
                job.committed(value)
        except Exception as error:  # noqa: BLE001 (handed to the one who waits)
            failed = error
        if failed is None:
            job.future.set_result(value)
        else:
            job.future.set_exception(self._named(failed))

    def _rolled_back(self, error: BaseException) -> None:
        if self._db.in_transaction:  # SQLite itself rolls back on a full disk
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
        if no_room(error):
            if not self.full:
                log.warning("disk_full", file=str(self._file), mend="free space; the run goes on")
            self.full = True
            with suppress(sqlite3.Error):  # the write-ahead log may start over in its own space
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            self._try_again(RETRY_S)
        elif self._logs.staged:
            self._try_again(0.0)

    def _try_again(self, seconds: float) -> None:
        with self._changed:
            self._commit_at = time.monotonic() + seconds

    def _probe(self) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES ('probe', ?)", (str(time.time()),))

    def _named(self, error: BaseException) -> BaseException:
        if code_of(error) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return error
        return JournalDamaged(
            f"the journal {self._file} is damaged ({error}): stop, keep a copy, and restore it or "
            "open a new run with `engine serve RECIPE --fork RUN`"
        )
