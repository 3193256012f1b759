"""Room for bodies: a bound, the order of arrival, and clients that leave while they wait."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from ingress.body_room import BodyRoom
from tests.support.waiting import until

pytestmark = pytest.mark.quick


class Holder:
    """A request with a body of `size` bytes, which stays until `leave` is set."""

    def __init__(self, room: BodyRoom, size: int) -> None:
        self.has_room = False
        self.leave = asyncio.Event()
        self.task = asyncio.create_task(self._hold(room, size))

    async def _hold(self, room: BodyRoom, size: int) -> None:
        async with room.of(size):
            self.has_room = True
            await self.leave.wait()


async def test_requests_get_room_in_order_within_the_bound() -> None:
    room = BodyRoom(10)
    first, second, large, small = (Holder(room, size) for size in (4, 6, 8, 1))
    await until(lambda: second.has_room, "room")
    assert (room.in_hand, large.has_room, small.has_room) == (10, False, False)
    first.leave.set()
    await first.task
    assert not small.has_room, "a later request does not pass an earlier one"
    second.leave.set()
    await until(lambda: small.has_room, "room after the large one")
    assert room.in_hand == 9
    for one in (large, small):
        one.leave.set()
        await one.task
    assert room.in_hand == 0


async def test_a_client_that_leaves_gives_its_place_back() -> None:
    room = BodyRoom(10)
    async with AsyncExitStack() as held:
        await held.enter_async_context(room.of(10))
        waits, behind = Holder(room, 10), Holder(room, 1)
        await until(lambda: len(room._waiting) == 2, "the queue")
        waits.task.cancel()
        await asyncio.wait([waits.task])
        assert room.in_hand == 10
    await until(lambda: behind.has_room, "room")
    behind.task.cancel()
    await asyncio.wait([behind.task])
    assert room.in_hand == 0


async def test_one_body_above_the_bound_has_room_alone() -> None:
    room = BodyRoom(10)
    async with room.of(20):
        later = Holder(room, 1)
        await until(lambda: len(room._waiting) == 1, "the queue")
    await until(lambda: later.has_room, "room")
    later.leave.set()
    await later.task
