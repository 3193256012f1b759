"""An index that many callers ask at once: a queue, one thread, and the index that it has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import NamedTuple, Self

from toolsvc.backends.search.batcher import Batcher, Ticket
from toolsvc.backends.search.index import SearchIndex, Sources
from toolsvc.backends.search.types import Hit, Query

BATCH = 256
QUEUE = 4096
MOST_HITS = 100
"""The largest k of a query."""


class Question(NamedTuple):
    """One query, and how many passages it wants."""

    query: Query
    k: int


class SearchAnswer(NamedTuple):
    """`batch`: how many queries were answered together; `encode_seconds`: for all of them."""

    hits: list[Hit]
    batch: int
    encode_seconds: float


class Searcher:
    """Async context manager. IndexFault on entering if the index cannot be used."""

    def __init__(
        self, sources: Sources, *, batch: int = BATCH, queue: int = QUEUE, window_s: float = 0.0
    ) -> None:
        """window_s: longest time that an idle searcher waits for more queries, in seconds."""
        self._sources = sources
        self._window_s = window_s
        self._batch = batch
        self._queue = queue
        self._thread = ThreadPoolExecutor(1, "batch")
        """The work needs no lock, and FAISS and numpy let go of the interpreter."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        # In a thread: an encoder takes seconds to load, and a signal should end that.
        self.index = await asyncio.to_thread(SearchIndex, self._sources)
        self._stack.callback(self.index.close)
        self._stack.push_async_callback(asyncio.to_thread, self._thread.shutdown)
        batcher: Batcher[Question, SearchAnswer] = Batcher(
            self._in_thread, most=self._batch, queue=self._queue, window_s=self._window_s
        )
        self._batcher = await self._stack.enter_async_context(batcher)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def room(self) -> int:
        """How many more queries may wait."""
        return self._batcher.room

    def figures(self) -> dict[str, float]:
        """Figures of the queue, for the metrics page."""
        return self._batcher.figures()

    def submit(self, query: Query, k: int) -> Ticket[Question, SearchAnswer]:
        """A place in the queue. QueueFull; NoVector or WrongVector for a query that this index
        cannot answer."""
        self.index.check(query)
        return self._batcher.submit(Question(query, k))

    async def _in_thread(self, questions: Sequence[Question]) -> list[SearchAnswer]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._answer, questions)

    def _answer(self, questions: Sequence[Question]) -> list[SearchAnswer]:
        most = max(question.k for question in questions)
        found = self.index.search([question.query for question in questions], most)
        return [
            SearchAnswer(hits[: question.k], len(questions), found.encode_seconds)
            for question, hits in zip(questions, found.hits, strict=True)
        ]
