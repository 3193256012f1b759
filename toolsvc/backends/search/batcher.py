"""Many callers, few batches: items that arrive while batches are answered are the next batch.

Invariants
- At most `at_once` batches are answered at a time.
- An idle batcher waits at most `window_s` for more items; 0 = it begins at once. A batcher that was
  busy begins at once with the items that wait.
- At most `queue` items wait; the next one is refused.
- What a caller gave up before its batch began is not computed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class QueueFull(Exception):
    """No place to wait in; nothing was done."""


class BatchFailed(Exception):
    """The work raised; `__cause__` is what it raised."""


class Ticket(Generic[Item, Answer]):
    """A place in the queue. Cancelling `answer` gives it up."""

    __slots__ = ("answer", "begun", "item", "on_begin")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.begun = False
        """Its batch is being computed."""
        self.on_begin: Callable[[], object] | None = None
        """Called when that begins."""


class Batcher(Generic[Item, Answer]):
    """Async context manager. `work` answers a batch, in its order."""

    def __init__(
        self,
        work: Callable[[list[Item]], Awaitable[Sequence[Answer | Exception]]],
        *,
        most: int = 256,
        queue: int = 4096,
        at_once: int = 1,
        window_s: float = 0.0,
    ) -> None:
        """work: an exception in place of an answer fails that item alone. most: items of one batch.
        at_once: batches that are answered at a time. window_s: longest time that an idle batcher
        waits for a full batch, in seconds."""
        self._work = work
        self._most = most
        self._queue = queue
        self._waiting: deque[Ticket[Item, Answer]] = deque()
        self._begun: set[Ticket[Item, Answer]] = set()
        self._window_s = window_s
        self._arrived = asyncio.Event()
        self._full = asyncio.Event()
        self._free = asyncio.Semaphore(at_once)
        self._loop: asyncio.Task[None] | None = None
        self.batches = 0
        """Computed so far."""
        self.items = 0
        """In all of them."""

    async def __aenter__(self) -> Batcher[Item, Answer]:
        self._loop = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancels every ticket without an answer."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait((self._loop,))
        for ticket in (*self._waiting, *self._begun):
            ticket.answer.cancel()
        self._waiting.clear()
        self._begun.clear()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def room(self) -> int:
        """How many more may wait."""
        return self._queue - len(self._waiting)

    def figures(self) -> dict[str, float]:
        """Figures of the queue, for the metrics page."""
        return {
            "waiting": self.waiting,
            "batches_total": self.batches,
            "queries_total": self.items,
        }

    def submit(self, item: Item) -> Ticket[Item, Answer]:
        """A ticket whose answer may raise BatchFailed. QueueFull if there is no room."""
        if self.room <= 0:
            raise QueueFull
        ticket: Ticket[Item, Answer] = Ticket(item)
        self._waiting.append(ticket)
        self._arrived.set()
        if len(self._waiting) >= self._most:
            self._full.set()
        return ticket

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as batches:
            while True:
                await self._free.acquire()
                idle = not self._waiting
                batch: list[Ticket[Item, Answer]] = []
                while not batch:
                    await self._arrived.wait()
                    if idle and self._window_s:
                        with suppress(TimeoutError):
                            await asyncio.wait_for(self._full.wait(), self._window_s)
                    batch = self._take()
                self._begun.update(batch)
                batches.create_task(self._answer(batch))

    def _take(self) -> list[Ticket[Item, Answer]]:
        batch: list[Ticket[Item, Answer]] = []
        while self._waiting and len(batch) < self._most:
            ticket = self._waiting.popleft()
            if not ticket.answer.done():
                ticket.begun = True
                if ticket.on_begin is not None:
                    ticket.on_begin()
                batch.append(ticket)
        if not self._waiting:
            self._arrived.clear()
        if len(self._waiting) < self._most:
            self._full.clear()
        return batch

    async def _answer(self, batch: list[Ticket[Item, Answer]]) -> None:
        items = [ticket.item for ticket in batch]
        self.batches += 1
        self.items += len(items)
        try:
            answers = await self._work(items)
            answered = list(zip(batch, answers, strict=True))
        except Exception as error:  # noqa: BLE001 - it goes to each caller
            answered = [(ticket, error) for ticket in batch]
        finally:
            self._free.release()
        self._begun.difference_update(batch)
        for ticket, answer in answered:
            if ticket.answer.done():
                continue
            if isinstance(answer, Exception):
                failed = BatchFailed(f"{type(answer).__name__}: {answer}")
                failed.__cause__ = answer
                ticket.answer.set_exception(failed)
            else:
                ticket.answer.set_result(answer)
