"""Schedules of `bench simulate` as tests: 1,000 of them, in two files that run side by side."""

from __future__ import annotations

from bench.simulate.campaign import played
from bench.simulate.command import report
from bench.simulate.playing.play import studio

A_TEST = 50
"""Schedules of one test, some 7 s of CPU."""


def check(first: int) -> None:
    """Plays `A_TEST` schedules from the seed `first` on. A failure shows what `bench simulate`
    prints of it."""
    with studio() as place:
        for seed in range(first, first + A_TEST):
            failure = played(place, seed, shrink=True).failure
            assert failure is None, report(seed, failure)
