"""Pauses before a dead host is replaced."""

from __future__ import annotations

from itertools import pairwise

from toolsvc.fleet.restarts import (
    BACKOFF,
    STEADY_SECONDS,
    Restarts,
)


def test_pauses_double_up_to_a_bound() -> None:
    restarts = Restarts()
    pauses = [restarts.pause(lived=0.0) for _ in range(100)]
    assert pauses[0] == BACKOFF.first
    assert all(b in (2 * a, BACKOFF.longest) for a, b in pairwise(pauses))
    assert pauses[-1] == BACKOFF.longest


def test_a_host_that_lived_for_a_while_begins_anew() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.pause(lived=0.0)
    assert restarts.pause(lived=STEADY_SECONDS) == BACKOFF.first
    assert restarts.pause(lived=STEADY_SECONDS - 1) == 2 * BACKOFF.first
