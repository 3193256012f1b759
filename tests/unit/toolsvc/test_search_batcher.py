"""Queries that arrive together are answered together, and never without bound."""

import asyncio
import threading

import pytest

from toolsvc.backends.search.batcher import Batcher, BatchFailed


class Work:
    """Answers ten times the item; waits before each batch until it is let go."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Semaphore(0)
        self.begun = threading.Event()

    async def __call__(self, items: list[int]) -> list[int]:
        return await asyncio.to_thread(self._compute, items)

    def _compute(self, items: list[int]) -> list[int]:
        self.begun.set()
        assert self.go.acquire(timeout=10)
        self.batches.append(items)
        if 13 in items:
            raise ValueError("thirteen")
        return [10 * item for item in items]


async def begin(work: Work) -> None:
    assert await asyncio.to_thread(work.begun.wait, 10)


async def loop_turns() -> None:
    """Lets an idle batcher come to its queue, and begin if it would."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_idle_batcher_waits_for_its_window() -> None:
    work = Work()
    work.go.release(9)
    async with Batcher(work, window_s=0.05) as batcher:
        await loop_turns()
        first = batcher.submit(1)
        await loop_turns()
        assert not first.begun
        second = batcher.submit(2)
        assert await asyncio.gather(first.answer, second.answer) == [10, 20]
        assert await batcher.submit(3).answer == 30
    assert work.batches == [[1, 2], [3]]


async def test_a_full_batch_does_not_wait_for_its_window() -> None:
    work = Work()
    work.go.release(9)
    async with Batcher(work, most=2, window_s=600) as batcher:
        await loop_turns()
        first = batcher.submit(1)
        await loop_turns()
        assert not first.begun
        second = batcher.submit(2)
        assert await asyncio.gather(first.answer, second.answer) == [10, 20]
        await loop_turns()
        alone = batcher.submit(3)
        await loop_turns()
        assert not alone.begun
    assert alone.answer.cancelled()


async def test_a_busy_batcher_does_not_wait_for_its_window() -> None:
    work = Work()
    async with Batcher(work, most=2, window_s=600) as batcher:
        first = [batcher.submit(item) for item in (1, 2)]
        await begin(work)
        second = batcher.submit(3)
        work.go.release(2)
        assert await asyncio.gather(*(ticket.answer for ticket in first)) == [10, 20]
        assert await second.answer == 30


async def test_what_was_given_up_while_it_waited_is_not_computed() -> None:
    work = Work()
    async with Batcher(work) as batcher:
        first = batcher.submit(1)
        await begin(work)
        given_up, kept = batcher.submit(2), batcher.submit(3)
        given_up.answer.cancel()
        work.go.release(2)
        assert await asyncio.gather(first.answer, kept.answer) == [10, 30]
    assert work.batches == [[1], [3]]


async def test_a_failure_goes_to_everybody_in_the_batch_and_to_nobody_else() -> None:
    work = Work()
    async with Batcher(work) as batcher:
        first = batcher.submit(1)
        await begin(work)
        unlucky = [batcher.submit(12), batcher.submit(13)]
        work.go.release(2)
        for ticket in unlucky:
            with pytest.raises(BatchFailed, match="thirteen") as failure:
                await ticket.answer
            assert isinstance(failure.value.__cause__, ValueError)
        work.go.release()
        assert await first.answer == 10
        assert await batcher.submit(5).answer == 50


async def test_closing_cancels_all_that_has_no_answer() -> None:
    work = Work()
    async with Batcher(work) as batcher:
        first = batcher.submit(1)
        await begin(work)
        waiting = batcher.submit(2)
        work.go.release()
    assert first.answer.done()
    assert waiting.answer.cancelled()
