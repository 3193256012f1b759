"""Keeps the indexes current while somebody looks, and tells when there is something new.

Invariants
- Each run has one task, and one thread at a time that writes its index.
- Once an index has all there is, nothing is read until somebody looks.
- Whoever listens hears of a change; of several at once, one word.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from console.web.index.sources import STRANGE
from console.web.runs import Run

INTERVAL_S = 1.0
"""Between looks at a run that had nothing new."""
AFTER_FAULT_S = 10.0


class Keeper:
    """`keeping` it works; `listening` is how a page hears of changes."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = {run.name: run for run in runs}
        self._listeners: set[asyncio.Event] = set()
        self._somebody = asyncio.Event()

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Reads until the block ends, and closes the indexes."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._keep(run)) for run in self.runs.values()]
                yield
                for task in tasks:
                    task.cancel()
        finally:
            for run in self.runs.values():
                run.index.close()

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever something changed; who heard clears it."""
        event = asyncio.Event()
        self._listeners.add(event)
        self._somebody.set()
        try:
            yield event
        finally:
            self._listeners.discard(event)
            if not self._listeners:
                self._somebody.clear()

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
            await self._somebody.wait()

    def _tell(self) -> None:
        for event in self._listeners:
            event.set()


async def _whole(work: object) -> bool:
    """Waits for a thread's work to its end, also when it is told to stop amid it."""
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]
    try:
        return bool(await asyncio.shield(task))
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
