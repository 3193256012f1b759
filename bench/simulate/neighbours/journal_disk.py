"""Driver of a simulated engine's journal: commits in the loop, on a disk that may be full.

The disk is a witness too: it notes what the engine appends, and at the end of a life it compares
that with what the journal holds. `RoomAgain.full` alone is the engine's own word.

Invariants
- A commit without a job takes a seeded prefix of what was appended, and all that is older than
  `OLDEST_S`; the rest comes with the next.
- At a kill a last transaction is committed or not, with any prefix; nothing comes after it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from itertools import takewhile
from random import Random
from typing import Any

from bench.history.events import GivenUp, Journaled, RoomAgain
from bench.history.invariants.journal import DURABLE_S
from bench.history.names import group_of
from bench.simulate.virtual.loop import loop_here
from engine.core.trajectory.events import AnyEvent, Ended, Scored, decode
from engine.serving.journal.logs import LogEntry, LogState, read_log
from engine.serving.journal.writer import Writer

JOB_S = 0.002
"""Mean seconds of a transaction."""
OLDEST_S = 0.3
"""Age of an appended event that every commit takes, in seconds."""
Log = list[tuple[float, AnyEvent]]
"""Events, with the time at which each was appended."""
See = Callable[[GivenUp | Journaled | RoomAgain], None]


class Disk:
    """The disk of all lives of a run's journal."""

    def __init__(self, random: Random, see: See) -> None:
        self.random = random
        self.see = see
        self.full = False
        self.room_since = -math.inf
        """When the disk last became free again."""
        self.drivers: list[LoopDriver] = []
        self.logs: dict[str, Log] = {}
        """Events of attempts that were not given up. Events that an earlier life lost are left
        out."""

    def drive(self, writer: Writer) -> LoopDriver:
        self.drivers.append(LoopDriver(self, writer))
        return self.drivers[-1]

    def fill(self, full: bool) -> None:
        """From now on there is no room, or there is again."""
        loop = loop_here()
        self.full = full
        self.room_since = loop.time()
        if not self.drivers:
            return
        self.drivers[-1].limit()
        if not full:
            late = loop.time() + DURABLE_S
            loop.call_at(late, self._look, self.drivers[-1], self.room_since, context=loop.world)

    def _look(self, driver: LoopDriver, since: float) -> None:
        """The life of that time goes on, and the disk has had room."""
        if self.room_since == since and driver.runs:
            full, now = driver.writer.full, loop_here().time()
            self.see(RoomAgain(at=now, seconds=DURABLE_S, full=full))


class LoopDriver:
    """Steps the writer from timers of the loop."""

    def __init__(self, disk: Disk, writer: Writer) -> None:
        self._disk = disk
        self.writer = writer
        self._ended = loop_here().create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._crashed = False
        self.lost = False
        """The engine ended on a full disk, without its last events."""
        self._ages: list[float] = []
        """When each entry of the writer's buffer was appended."""
        self._given_up: dict[str, Log] = {}
        """Logs of attempts that were given up. A crash may lose that."""
        self._written_up_to = -math.inf
        """Events that were appended before this time are durable: a later job has committed."""
        writer.write = self._noted(writer.write)  # type: ignore[method-assign]
        writer.write_soon = self._noted(writer.write_soon)  # type: ignore[method-assign]
        self._append = writer.append
        writer.append = self._appended  # type: ignore[method-assign]

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

    @property
    def runs(self) -> bool:
        return not (self._crashed or self._ended.done())

    async def ended(self) -> None:
        await asyncio.shield(self._ended)

    def _noted(self, write: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        """`write`; a job commits with everything that was appended before it."""

        async def noted(*args: Any, **named: Any) -> Any:
            began = loop_here().time()
            result = await write(*args, **named)
            if not self._disk.full:
                self._written_up_to = max(self._written_up_to, began)
            return result

        return noted

    def _appended(self, entry: LogEntry) -> None:
        before = self.writer.backlog
        self._append(entry)
        if self._crashed or self.writer.backlog == before:
            return  # the journal is closed
        now = loop_here().time()
        self._ages.append(now)
        if entry.events is None:
            self._given_up[entry.attempt] = self._disk.logs.pop(entry.attempt, [])
            self._disk.see(GivenUp(at=now, attempt=entry.attempt))
        else:
            log = self._disk.logs.setdefault(entry.attempt, [])
            given = entry.events
            events = decode(given) if isinstance(given, bytes) else given
            log += ((now, event) for event in events)

    def _step(self) -> None:
        self._timer = None
        writer, random = self.writer, self._disk.random
        with writer.lock:
            due = writer.due() <= 0
        del self._ages[: max(0, len(self._ages) - writer.backlog)]
        late = loop_here().time() - OLDEST_S
        least = sum(1 for _ in takewhile(lambda age: age < late, self._ages))
        if due and not writer.step(max(least, random.randint(0, writer.backlog))):
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
        self.lost = self.writer.backlog > 0
        for event in self._compared():
            self._disk.see(event)
        self.writer.end()
        self._ended.set_result(None)

    def _compared(self) -> Iterator[Journaled]:
        """An event for each attempt. Later lives begin with the kept events."""
        db, disk, now = self.writer.db, self._disk, loop_here().time()
        groups = {name for (name,) in db.execute("SELECT id FROM groups")}
        skipped = {f"g{place:07d}" for (place,) in db.execute("SELECT position FROM skipped")}
        states = {
            attempt: LogState(state)
            for attempt, state in db.execute("SELECT attempt, state FROM logs ORDER BY log")
            if state != LogState.GIVEN_UP
        }
        late = -math.inf if disk.full else now - DURABLE_S
        logs, disk.logs = disk.logs, {}
        for attempt in dict.fromkeys([*states, *logs]):
            state = states.get(attempt)
            appended = logs.get(attempt) or self._given_up.get(attempt, [])
            complete = group_of(attempt) in groups
            if state is None and (complete or group_of(attempt) in skipped):
                continue  # its log is gone with its group
            if state is LogState.COMPLETE and not appended:
                continue  # an earlier life's, which was compared then
            kept = read_log(db, attempt) if state is not None else []
            pairs = zip(kept, (event for _, event in appended), strict=False)
            due = sum(
                1
                for age, _ in logs.get(attempt, ())
                if age < self._written_up_to or max(age, disk.room_since) < late
            )
            if state is LogState.OPEN:
                disk.logs[attempt] = [(-math.inf, event) for event in kept]
            yield Journaled(
                at=now,
                attempt=attempt,
                appended=len(appended),
                kept=len(kept),
                agreeing=sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)),
                due=len(appended) if state is LogState.COMPLETE else due,
                open=state is LogState.OPEN,
                complete=complete,
                given_up=attempt not in logs,
                ended=any(isinstance(event, Ended) for event in kept),
                scored=any(isinstance(one, Scored) and not one.hooked for one in kept),
            )
