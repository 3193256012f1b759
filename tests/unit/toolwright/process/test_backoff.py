"""Pauses between retries double up to a longest one."""

from __future__ import annotations

import random

import pytest

from toolwright.process.backoff import Backoff

pytestmark = pytest.mark.quick


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 5.0, jitter=False)
    assert [backoff.pause(tries) for tries in (0, 1, 2, 5, 6, 10**9)] == [
        0.1, 0.2, 0.4, pytest.approx(3.2), 5.0, 5.0,
    ]  # fmt: skip


def test_jitter_shortens_a_pause_to_half_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(3)
    monkeypatch.setattr(random, "uniform", dice.uniform)
    pauses = [Backoff(1.0, 4.0).pause(2) for _ in range(500)]
    assert 2.0 <= min(pauses) < 2.1
    assert 3.9 < max(pauses) <= 4.0
