"""Lives of workers: a later one and a long silence end the attempts of a life."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from engine.serving.ingress import worker_lives
from engine.serving.ingress.worker_lives import LifeOver, WorkerLives, holder, taker
from tests.support.waiting import until

pytestmark = pytest.mark.quick

A, B = holder("w", "a"), holder("w", "b")


async def test_a_later_life_ends_the_earlier_one() -> None:
    lost: list[str] = []
    lives = WorkerLives(lost.append)
    lives.seen("w", "a")
    lives.seen("w", "b")
    assert lost == [A]
    with pytest.raises(LifeOver, match="name this one otherwise"):
        lives.seen("w", "a")
    lives.seen("other", "a")
    assert lost == [A]


async def test_an_attempt_of_an_earlier_life_does_not_go_on() -> None:
    lives = WorkerLives(lambda _name: None)
    assert lives.holds(taker("w", "a", 1))
    lives.seen("w", "b")
    assert not lives.holds(taker("w", "a", 2))
    assert lives.holds(taker("w", "b", 1))


async def test_workers_without_lives_hold_for_ever() -> None:
    lives = WorkerLives(lambda _name: None)
    lives.seen("w", "")
    assert lives.holds(taker("w", "", 1))
    assert lives.holds("")


async def test_a_silent_life_loses_its_attempts() -> None:
    lost: list[str] = []
    lives = WorkerLives(lost.append)
    with patch.object(worker_lives, "LEASE_S", 0.02), patch.object(worker_lives, "GRACE_S", 0.01):
        lives.holds(taker("w", "a", 1))
        lives.seen("w2", "b")
        await until(lambda: len(lost) == 2, "two lost leases")
    assert set(lost) == {A, holder("w2", "b")}
