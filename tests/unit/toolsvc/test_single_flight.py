import asyncio

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


async def test_the_last_who_gives_up_stops_it() -> None:
    flights, work = SingleFlight[int](), Work()
    tasks = await several(flights, work)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert (work.begun, work.stopped) == (1, 1)
    work.may_end.set()
    assert await flights.do("a", work) == 2
