"""A worker's lease: it ends by the worker's own clock, from the moment at which a beat was sent."""

from __future__ import annotations

import pytest

from engine.serving.worker.lease_clock import FIRST_S, LeaseClock

pytestmark = pytest.mark.quick


class Ended(Exception):
    """What ends the process in a real worker."""


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.lease = LeaseClock(self._end, lambda: self.now)

    def _end(self) -> None:
        raise Ended

    def holds(self) -> bool:
        try:
            self.lease.check()
        except Ended:
            return False
        return True


def test_a_worker_without_work_has_no_lease() -> None:
    clock = Clock()
    clock.now += 1000.0
    assert clock.holds()


def test_a_lease_counts_from_the_beat_and_not_from_its_answer() -> None:
    clock = Clock()
    clock.lease.begin()
    beat = clock.lease.beat()
    clock.now += 8.0
    clock.lease.granted(beat, 10.0)
    clock.now += 1.9
    assert clock.holds()
    clock.now += 0.2
    assert not clock.holds()


def test_the_answer_to_an_old_beat_prolongs_nothing() -> None:
    clock = Clock()
    clock.lease.begin()
    first, second = clock.lease.beat(), clock.lease.beat()
    clock.lease.granted(second, 10.0)
    clock.now += 9.0
    clock.lease.granted(first, 10.0)
    clock.lease.granted(99, 10.0)
    clock.now += 1.5
    assert not clock.holds()


def test_a_first_beat_without_an_answer_ends_the_work() -> None:
    clock = Clock()
    clock.lease.begin()
    clock.lease.beat()
    clock.now += FIRST_S + 0.1
    assert not clock.holds()
