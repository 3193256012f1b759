"""What drives the journal of a simulated engine: commits in the loop, on a disk that may be full.

Invariants
- A commit without a job takes a seeded prefix of what was appended; the rest comes with the next.
- At a kill a last transaction is committed or not, with any prefix; nothing comes after it.
"""

from __future__ import annotations

import asyncio
import math
from random import Random

from bench.simulate.loop import loop_here
from engine.serving.journal.writer import Writer

JOB_S = 0.002
"""Mean seconds of a transaction."""


class Disk:
    """The disk of all lives of a run's journal."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.full = False
        self.drivers: list[LoopDriver] = []

    def drive(self, writer: Writer) -> LoopDriver:
        self.drivers.append(LoopDriver(self, writer))
        return self.drivers[-1]

    def fill(self, full: bool) -> None:
        """From now on there is no room, or there is again."""
        self.full = full
        if self.drivers:
            self.drivers[-1].limit()


class LoopDriver:
    """Steps the writer from timers of the loop."""

    def __init__(self, disk: Disk, writer: Writer) -> None:
        self._disk = disk
        self.writer = writer
        self._ended = loop_here().create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._crashed = False

    def start(self) -> None:
        self.limit()
        with self.writer.lock:
            self.wake()

    def limit(self) -> None:
        """Tells SQLite how much room there is."""
        if self._ended.done():
            return
        db = self.writer.db
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        most = pages if self._disk.full else 2**30
        db.execute(f"PRAGMA max_page_count = {most}").fetchone()

    def wake(self) -> None:
        if self._crashed or self._ended.done():
            return
        wait = self.writer.due()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait == math.inf:
            return
        loop = loop_here()
        when = loop.time() + wait + self._disk.random.expovariate(1 / JOB_S)
        self._timer = loop.call_at(when, self._step, context=loop.world)

    async def ended(self) -> None:
        await asyncio.shield(self._ended)

    def _step(self) -> None:
        self._timer = None
        writer, random = self.writer, self._disk.random
        with writer.lock:
            due = writer.due() <= 0
        if due and not writer.step(random.randint(0, writer.backlog)):
            self._end()
            return
        with writer.lock:
            self.wake()

    def crash(self) -> None:
        """The process is killed here and now."""
        if self._ended.done():
            return
        self._crashed = True
        if self._timer is not None:
            self._timer.cancel()
        writer, random = self.writer, self._disk.random
        for _ in range(random.randint(0, 2)):
            writer.step(random.randint(0, writer.backlog), early=True)
        self._end()

    def _end(self) -> None:
        self.writer.end()
        self._ended.set_result(None)
