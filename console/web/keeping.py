"""Keeps the indexes current while a page listens, and says when there is something new.

Invariants
- Each run has one task, and one thread at a time that writes its index.
- Once an index has all there is, nothing is read until a page listens.
- Every listener hears of a change; of several at once, one word.
- A run that begins meanwhile is shown after those that are shown already.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

from console.errors import RecordBroken
from console.web.index.sources import STRANGE
from console.web.runs import NewRuns, Run

Found = TypeVar("Found")
INTERVAL_S = 1.0
"""Between looks at a run that had nothing new."""
AFTER_FAULT_S = 10.0
LOOK_S = 2.0
"""Interval between two looks for new runs, in seconds."""
RESTS = 20
"""A look that took a second is repeated after so many."""


class Keeper:
    """`keeping` it works; `listening` is how a page hears of changes."""

    def __init__(self, runs: Sequence[Run], new_runs: NewRuns | None = None) -> None:
        """new_runs: finds those that begin later."""
        self._new_runs = new_runs
        self.runs = {run.name: run for run in runs}
        self._listeners: set[asyncio.Event] = set()
        self._listened = asyncio.Event()

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Reads until the block ends, and closes the indexes."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._keep(run)) for run in self.runs.values()]
                if self._new_runs is not None:
                    tasks.append(group.create_task(self._add(self._new_runs, group, tasks)))
                yield
                for task in tasks:
                    task.cancel()
        finally:
            for run in self.runs.values():
                run.index.close()

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever something changed; the listener clears it."""
        event = asyncio.Event()
        self._listeners.add(event)
        self._listened.set()
        try:
            yield event
        finally:
            self._listeners.discard(event)
            if not self._listeners:
                self._listened.clear()

    async def _add(
        self, new_runs: NewRuns, group: asyncio.TaskGroup, tasks: list[asyncio.Task[None]]
    ) -> None:
        """Shows the runs that begin. Many folders are looked through more seldom."""
        while True:
            await self._listened.wait()
            began = time.monotonic()
            found: list[Run] = []
            with suppress(RecordBroken, OSError, sqlite3.Error):  # looked for again
                found = await _whole(asyncio.to_thread(new_runs.find, list(self.runs.values())))
            for run in found:
                self.runs[run.name] = run
                tasks.append(group.create_task(self._keep(run)))
            if found:
                self._tell()
            await asyncio.sleep(max(LOOK_S, RESTS * (time.monotonic() - began)))

    async def _keep(self, run: Run) -> None:
        while True:
            pause = INTERVAL_S
            try:
                # Shielded: the index must not be closed under a thread that writes it.
                changed = await _whole(asyncio.to_thread(run.refresh))
                changed, run.fault = changed or bool(run.fault), ""
            except (sqlite3.Error, OSError) as error:
                fault = f"the index {run.index.file} cannot be written: {error}"
                changed, run.fault, pause = run.fault != fault, fault, AFTER_FAULT_S
            except STRANGE as error:  # one bad run must not end the tasks of the others
                fault = f"{run.folder} cannot be read: {error!r:.300}"
                changed, run.fault, pause = run.fault != fault, fault, AFTER_FAULT_S
            if changed:
                self._tell()
            if not run.whole and not run.fault:
                continue
            await asyncio.sleep(pause)
            await self._listened.wait()

    def _tell(self) -> None:
        for event in self._listeners:
            event.set()


async def _whole(work: Coroutine[Any, Any, Found]) -> Found:
    """Waits for a thread's work to its end, also if it is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
