"""`first_of_group`: one error in place of a group, and no cancellation left with the task."""

from __future__ import annotations

import asyncio

import pytest

from engine.errors import AttemptFailed, SessionLost, first_of_group

pytestmark = pytest.mark.quick


async def fails(error: Exception) -> None:
    await asyncio.sleep(0)
    raise error


async def test_the_first_error_is_raised_in_place_of_the_group() -> None:
    with pytest.raises(SessionLost, match="gone"), first_of_group(AttemptFailed):
        async with asyncio.TaskGroup() as group:
            group.create_task(fails(SessionLost("gone")))


async def test_an_error_of_another_kind_leaves_the_group_as_it_is() -> None:
    with pytest.raises(ExceptionGroup), first_of_group(AttemptFailed):
        async with asyncio.TaskGroup() as group:
            group.create_task(fails(ValueError("a bug")))


async def test_a_timeout_after_it_is_a_timeout() -> None:
    """A retry waits for room with `asyncio.timeout`. A cancellation that the group left would end
    the task instead, before Python 3.11.3."""
    with pytest.raises(SessionLost), first_of_group(AttemptFailed):
        async with asyncio.TaskGroup() as group:
            group.create_task(fails(SessionLost("gone")))
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()


async def test_a_cancellation_from_outside_ends_the_task() -> None:
    async def worker() -> None:
        with first_of_group(AttemptFailed):
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.Event().wait())

    task = asyncio.create_task(worker())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1
