"""The pool of threads for reward functions: bounded, and mended as far as threads can be."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from engine.core.rewards.threads import RewardThreads, ThreadOutOfTime, ThreadsLost
from tests.support.waiting import until


async def regained(threads: RewardThreads) -> None:
    for _ in range(2000):
        await asyncio.sleep(0.005)
        if not threads.lost:
            return


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
async def test_nothing_that_a_function_raises_ends_its_thread(kind: type[BaseException]) -> None:
    def raises(_: object) -> None:
        raise kind

    threads = RewardThreads(1)
    _, error = await threads.run(raises, None, seconds=5)
    assert type(error) is kind
    assert await threads.run(len, [1], seconds=5) == (1, None)
    threads.close()


async def test_no_more_calls_at_a_time_than_slots_and_no_thread_a_call() -> None:
    seen, running, most = set(), 0, 0
    lock = threading.Lock()

    def work(_: object) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            seen.add(threading.get_ident())
        threading.Event().wait(0.002)
        with lock:
            running -= 1

    threads = RewardThreads(3)
    await asyncio.gather(*(threads.run(work, None, seconds=5) for _ in range(30)))
    assert most == 3
    assert len(seen) == 3
    threads.close()


async def test_waiting_for_a_thread_is_not_the_call_s_time() -> None:
    threads = RewardThreads(1)
    wait = threading.Event().wait
    outcomes = await asyncio.gather(*(threads.run(wait, 0.05, seconds=0.15) for _ in range(6)))
    assert outcomes == [(False, None)] * 6
    assert threads.lost == 0
    threads.close()


async def test_a_lost_thread_is_replaced_and_comes_back() -> None:
    threads, release = RewardThreads(1, most_lost=2), threading.Event()

    def hangs(_: object) -> Any:
        return release.wait(30)

    for lost in (1, 2):
        with pytest.raises(ThreadOutOfTime):
            await threads.run(hangs, None, seconds=0.02)
        assert threads.lost == lost
    with pytest.raises(ThreadsLost, match="2 calls of the reward function never returned"):
        await threads.run(len, [1], seconds=5)
    release.set()
    await regained(threads)
    assert await threads.run(len, [1], seconds=5) == (1, None)
    threads.close()


async def test_a_cancelled_call_keeps_its_thread_until_it_returns() -> None:
    threads, begun, release = RewardThreads(1), threading.Event(), threading.Event()

    def held(_: object) -> bool:
        begun.set()
        return release.wait(30)

    call = asyncio.ensure_future(threads.run(held, None, seconds=30))
    await until(begun.is_set, "the call")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert threads.lost == 1
    assert await threads.run(len, [1], seconds=5) == (1, None)
    release.set()
    await regained(threads)
    threads.close()
