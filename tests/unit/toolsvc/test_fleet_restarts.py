"""Pauses before a dead host is replaced."""

from __future__ import annotations

from itertools import pairwise

from toolsvc.fleet.restarts import (
    FIRST_SECONDS,
    LONGEST_SECONDS,
    STEADY_SECONDS,
    Restarts,
)


def test_pauses_double_up_to_a_bound() -> None:
    restarts = Restarts()
    pauses = [restarts.pause(lived=0.0) for _ in range(100)]
    assert pauses[0] == FIRST_SECONDS
    assert all(b in (2 * a, LONGEST_SECONDS) for a, b in pairwise(pauses))
    assert pauses[-1] == LONGEST_SECONDS


def test_a_host_that_lived_for_a_while_begins_anew() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.pause(lived=0.0)
    assert restarts.pause(lived=STEADY_SECONDS) == FIRST_SECONDS
    assert restarts.pause(lived=STEADY_SECONDS - 1) == 2 * FIRST_SECONDS
