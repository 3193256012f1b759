import asyncio

import pytest

from toolsvc.backends.single_flight import SingleFlight


class Work:
    """Ends when it is told to; remembers how often it began and whether it was stopped."""

    def __init__(self) -> None:
        self.begun = 0
        self.stopped = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return self.begun


async def several(
    flights: SingleFlight[int], work: Work, key: str = "a"
) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(flights.do(key, work)) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_work_of_one_key_is_done_once() -> None:
    flights, work = SingleFlight[int](), Work()
    tasks = await several(flights, work)
    work.may_end.set()
    assert await asyncio.gather(*tasks) == [1, 1, 1]
    assert await flights.do("a", work) == 2  # What has ended is not joined.


async def test_who_gives_up_leaves_it_to_the_others() -> None:
    flights, work = SingleFlight[int](), Work()
    first, *others = await several(flights, work)
    first.cancel()
    await asyncio.wait((first,))
    work.may_end.set()
    assert await asyncio.gather(*others) == [1, 1]
    assert work.stopped == 0


async def test_the_last_who_gives_up_stops_it() -> None:
    flights, work = SingleFlight[int](), Work()
    tasks = await several(flights, work)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert (work.begun, work.stopped) == (1, 1)
    work.may_end.set()
    assert await flights.do("a", work) == 2


async def test_a_failure_is_told_to_all_and_not_kept() -> None:
    flights = SingleFlight[int]()

    async def fail() -> int:
        raise ValueError("no")

    outcomes = await asyncio.gather(
        *(flights.do("a", fail) for _ in range(3)), return_exceptions=True
    )
    assert [str(outcome) for outcome in outcomes] == ["no", "no", "no"]
    with pytest.raises(ValueError, match="no"):
        await flights.do("a", fail)
