"""The trajectory's clock, on an event loop whose time is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from engine.core.time_limit import Outage, TimeLimit


class Clock(asyncio.SelectorEventLoop):
    """Its time passes only by sleeping, and then at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        timers = [one._when for one in self._scheduled if not one._cancelled]  # type: ignore[attr-defined]
        if not self._ready and timers:  # type: ignore[attr-defined]
            self.now = max(self.now, min(timers))
        super()._run_once()  # type: ignore[misc]


def run(body: Callable[[TimeLimit], Awaitable[None]]) -> float:
    """Time at which the limit of 10 s ended `body`; -1 when it did not."""

    async def limited() -> float:
        try:
            async with TimeLimit(10) as limit:
                await body(limit)
        except TimeoutError:
            return asyncio.get_running_loop().time()
        return -1

    with asyncio.Runner(loop_factory=Clock) as runner:
        return runner.run(limited())


def test_without_outages_it_is_a_time_out() -> None:
    async def short(_: TimeLimit) -> None:
        await asyncio.sleep(9)

    assert run(lambda _: asyncio.sleep(11)) == pytest.approx(10)
    assert run(short) == -1


def test_an_outage_does_not_count_from_its_beginning_on() -> None:
    """Known only when the call came back with nothing."""

    async def body(limit: TimeLimit) -> None:
        await asyncio.sleep(2)
        with Outage(limit) as outage:
            await asyncio.sleep(3)
            outage.noticed(2.0)
            outage.noticed(4.0)  # the same one, at the next try
            await asyncio.sleep(50)
            outage.over()
            outage.over()
            await asyncio.sleep(100)

    assert run(body) == pytest.approx(55 + 8)


def test_outages_that_overlap_are_one() -> None:
    async def body(limit: TimeLimit) -> None:
        with Outage(limit) as first, Outage(limit) as second:
            await asyncio.sleep(1)
            first.noticed(0.0)
            await asyncio.sleep(1)
            second.noticed(1.0)
            first.over()
            await asyncio.sleep(30)
        await asyncio.sleep(100)

    assert run(body) == pytest.approx(32 + 10)


def test_a_call_that_ends_in_failure_lets_the_clock_go_on() -> None:
    async def body(limit: TimeLimit) -> None:
        with pytest.raises(KeyError), Outage(limit) as outage:
            outage.noticed(0.0)
            await asyncio.sleep(20)
            raise KeyError
        await asyncio.sleep(100)

    assert run(body) == pytest.approx(30)


def test_without_a_limit_nothing_is_told() -> None:
    with Outage(None) as outage:
        outage.noticed(0.0)
        outage.over()


def test_no_second_counts_twice() -> None:
    """Two calls of one outage, of which one is told of it when the other has had its answer."""

    async def body(limit: TimeLimit) -> None:
        with Outage(limit) as first, Outage(limit) as second:
            await asyncio.sleep(6)
            first.noticed(0.0)
            first.over()
            second.noticed(0.0)
            await asyncio.sleep(5)
            second.over()
            await asyncio.sleep(100)

    assert run(body) == pytest.approx(6 + 5 + 10)


def test_what_was_before_the_limit_began_does_not_count() -> None:
    async def limited() -> float:
        await asyncio.sleep(100)
        limit = TimeLimit(10)
        outage = Outage(limit)
        outage.noticed(0.0)  # the sessions' opening
        try:
            async with limit:
                await asyncio.sleep(3)
                outage.over()
                await asyncio.sleep(100)
        except TimeoutError:
            return asyncio.get_running_loop().time()
        return -1

    with asyncio.Runner(loop_factory=Clock) as runner:
        assert runner.run(limited()) == pytest.approx(113)


def test_a_clock_that_is_told_late_counts_the_outage_from_its_beginning() -> None:
    async def body(limit: TimeLimit) -> None:
        with Outage(None) as outage:
            await asyncio.sleep(1)
            outage.noticed(1.0)
            await asyncio.sleep(5)
            outage.attach(limit)
            outage.attach(limit)
            await asyncio.sleep(50)
            outage.over()
            await asyncio.sleep(100)

    assert run(body) == pytest.approx(10 + 55)


def test_an_outage_may_end_after_the_limit() -> None:
    async def body() -> None:
        limit = TimeLimit(10)
        outage, late = Outage(limit), Outage(limit)
        async with limit:
            outage.noticed(0.0)
        outage.over()
        late.noticed(0.0)
        late.over()

    with asyncio.Runner(loop_factory=Clock) as runner:
        runner.run(body())
