"""Many callers, one thread: what arrives while a batch is computed is the next batch.

Invariants
- One batch is computed at a time, in one thread, so the work needs no lock, and the event loop
  goes on (FAISS and numpy let go of the interpreter).
- No caller waits for a batch to fill: an idle batcher begins at once.
- At most `queue` items wait; the next one is refused.
- What a caller gave up before its batch began is not computed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
        work: Callable[[list[Item]], Sequence[Answer]],
        *,
        most: int = 256,
        queue: int = 4096,
    ) -> None:
        """`most`: items of one batch."""
        self._work = work
        self._most = most
        self._queue = queue
        self._waiting: deque[Ticket[Item, Answer]] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "batch")
        self._loop: asyncio.Task[None] | None = None
        self.batches = 0
        """Computed so far."""
        self.items = 0
        """In all of them."""

    async def __aenter__(self) -> Batcher[Item, Answer]:
        self._loop = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancels what waits, and returns once the batch in hand has ended."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait((self._loop,))
        for ticket in self._waiting:
            ticket.answer.cancel()
        self._waiting.clear()
        await asyncio.to_thread(self._thread.shutdown)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def room(self) -> int:
        """How many more may wait."""
        return self._queue - len(self._waiting)

    def submit(self, item: Item) -> Ticket[Item, Answer]:
        """A ticket whose answer may raise BatchFailed. QueueFull if there is no room."""
        if self.room <= 0:
            raise QueueFull
        ticket: Ticket[Item, Answer] = Ticket(item)
        self._waiting.append(ticket)
        self._arrived.set()
        return ticket

    async def _serve(self) -> None:
        while True:
            await self._arrived.wait()
            batch = self._take()
            if batch:
                await self._compute(batch)

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
        return batch

    async def _compute(self, batch: list[Ticket[Item, Answer]]) -> None:
        items = [ticket.item for ticket in batch]
        self.batches += 1
        self.items += len(items)
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(self._thread, self._work, items)
            answered = list(zip(batch, answers, strict=True))
        except asyncio.CancelledError:
            for ticket in batch:
                ticket.answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - the callers' to judge, and it goes to each
            for ticket in batch:
                if not ticket.answer.done():
                    failed = BatchFailed(f"{type(error).__name__}: {error}")
                    failed.__cause__ = error
                    ticket.answer.set_exception(failed)
            return
        for ticket, answer in answered:
            if not ticket.answer.done():
                ticket.answer.set_result(answer)
