"""The feed of events: a reader gets all of them, or a counted gap."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import pairwise

import pytest

from engine.serving.telemetry import event_feed
from engine.serving.telemetry.event_feed import LIFE_BITS, EventFeed, FeedEvent
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError

FIRST = (1 << LIFE_BITS) + 1


@pytest.fixture(autouse=True)
def small_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "KEPT", 4)


def feed(events: int = 0, *, life: int = 1, closed: bool = True) -> EventFeed:
    made = EventFeed(life)
    for number in range(events):
        made.add("counted", number=number)
    if closed:
        made.close()
    return made


async def everything(of: EventFeed, after: int = 0) -> list[FeedEvent]:
    return [event async for event in of.follow(after)]


async def test_a_reader_goes_on_after_the_last_event_that_it_has() -> None:
    of = feed(3)
    whole = await everything(of)
    assert [event.data["number"] for event in whole] == [0, 1, 2]
    assert await everything(of, whole[0].number) == whole[1:]


async def test_a_slow_reader_gets_a_counted_gap_and_holds_nothing() -> None:
    of = feed(1, closed=False)
    async with aclosing(of.follow(0)) as events:
        assert (await anext(events)).number == FIRST
        for number in range(10):  # the reader is slow meanwhile
            of.add("counted", number=number)
        of.close()
        rest = [event async for event in events]
    gap, *seen = rest
    assert (gap.kind, gap.data["lost"]) == ("gap", 6)
    assert [event.data["number"] for event in seen] == [6, 7, 8, 9]
    assert all(later.number == event.number + 1 for event, later in pairwise(rest))


async def test_a_number_of_an_earlier_life_begins_with_a_gap() -> None:
    gap, *seen = await everything(feed(2, life=3), after=FIRST)
    assert gap.data == {"lost": 0, "earlier_life": True}
    assert len(seen) == 2


async def test_a_new_event_wakes_the_readers() -> None:
    of = feed(closed=False)
    reader = asyncio.create_task(everything(of))
    await asyncio.sleep(0)
    of.add("counted")
    of.close()
    assert [event.kind for event in await reader] == ["counted"]


async def test_a_number_that_never_was_is_refused() -> None:
    with pytest.raises(ServiceError) as refused:
        await everything(feed(1), after=FIRST + 1)
    assert refused.value.reason == reasons.ERROR_REASON_UNKNOWN_SEQUENCE


async def test_the_number_of_readers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "MOST_WATCHERS", 1)
    of = feed(1)
    async with aclosing(of.follow(0)) as events:
        await anext(events)
        with pytest.raises(ServiceError) as refused:
            await everything(of)
        assert refused.value.passes
    assert len(await everything(of)) == 1


async def test_what_no_event_can_hold_becomes_a_short_text() -> None:
    of = feed(closed=False)
    of.add("rewarded", reward=float("nan"), reason="x" * 10_000)
    of.close()
    (event,) = await everything(of)
    assert event.data["reward"] == "nan"
    assert len(event.data["reason"]) == event_feed.MOST_TEXT
