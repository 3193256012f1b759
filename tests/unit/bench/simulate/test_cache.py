"""Runs of the real engine whose samplers' caches bound what is in flight."""

from __future__ import annotations

import pytest

from bench.simulate.playing.play import studio
from bench.simulate.schedule import schedule_of
from bench.simulate.verdict import outcome
from engine.serving.admission.cache_limit import CacheLimit


@pytest.mark.quick
def test_runs_under_small_caches_keep_every_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, goes_on = 0, CacheLimit.goes_on

    def counted(self: CacheLimit, key: str) -> bool:
        nonlocal waits
        found = goes_on(self, key)
        waits += not found
        return found

    monkeypatch.setattr(CacheLimit, "goes_on", counted)
    seeds = [seed for seed in range(50) if schedule_of(seed).workload.cache_tokens]
    with studio() as place:
        for seed in seeds[:6]:
            failure = outcome(place, schedule_of(seed)).failure
            assert failure is None, f"seed {seed}: {failure}"
    assert waits


@pytest.mark.slow
def test_more_runs_under_small_caches_keep_every_promise() -> None:
    seeds = [seed for seed in range(50, 350) if schedule_of(seed).workload.cache_tokens]
    with studio() as place:
        failures = [outcome(place, schedule_of(seed)).failure for seed in seeds]
    assert len(seeds) > 30
    assert not any(failures)
