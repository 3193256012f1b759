"""Permits to start: bounded, in order, not held by sleepers."""

import asyncio
from types import SimpleNamespace

import pytest

import toolsvc.host.admission
from tests.support.hosts import refused
from toolsvc.errors import Reason
from toolsvc.host.admission import HOLD_SECONDS, Gate


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Permits do not run out: on a busy machine a millisecond is over between two lines."""
    monkeypatch.setattr(toolsvc.host.admission, "HOLD_SECONDS", 60.0)


def test_a_permit_comes_back_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=10.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(toolsvc.host.admission, "time", clock)
    gate = Gate(1)
    assert gate.try_enter() is not None
    clock.now += HOLD_SECONDS / 2
    assert gate.try_enter() is None
    clock.now += HOLD_SECONDS
    assert gate.try_enter() is not None
    assert gate.try_enter() is None


async def test_a_thousand_sleepers_do_not_wait_for_each_other() -> None:
    gate, asleep, everyone = Gate(64), 0, asyncio.Event()

    async def sleeper() -> None:
        nonlocal asleep
        permit = await gate.enter()
        asleep += 1
        if asleep == 1000:
            everyone.set()
        await everyone.wait()  # nobody wakes before the last one sleeps
        permit.release()

    async with asyncio.timeout(60):
        await asyncio.gather(*(sleeper() for _ in range(1000)))


async def test_permits_are_handed_on_in_order(kept: None) -> None:
    gate = Gate(1)
    first = await gate.enter()
    order: list[int] = []

    async def wait(number: int) -> None:
        permit = await gate.enter()
        order.append(number)
        permit.release()

    waiting = [asyncio.create_task(wait(number)) for number in range(5)]
    await asyncio.sleep(0)
    assert gate.waiting == 5
    first.release()
    first.release()
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2, 3, 4]


async def test_a_cancelled_wait_loses_no_permit(kept: None) -> None:
    gate = Gate(1)
    permit = await gate.enter()
    waiting = asyncio.create_task(gate.enter())
    await asyncio.sleep(0)
    permit.release()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert gate.try_enter() is not None


async def test_only_so_many_may_wait(kept: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolsvc.host.admission, "WAITING_CALLS", 2)
    gate = Gate(1)
    permit = await gate.enter()
    waiting = [asyncio.create_task(gate.enter()) for _ in range(2)]
    await asyncio.sleep(0)
    with refused(Reason.QUEUE_LIMIT) as failure:
        await gate.enter()
    assert failure.value.retry_after is not None
    permit.release()
    for one in waiting:
        (await one).release()
