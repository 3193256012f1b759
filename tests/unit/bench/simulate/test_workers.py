"""Whole runs of an engine with workers on the virtual clock: they repeat, keep every promise, and
planted bugs show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bench.history.validator import violations
from bench.simulate.playing.play import Studio, studio
from bench.simulate.schedule import ON_WORKERS, Kind, Schedule, schedule_of
from bench.simulate.verdict import outcome
from engine.core.sampler.fleet import Fleet
from engine.serving.crew.report_intake import ReportIntake
from engine.serving.crew.worker_link import WorkerLink
from engine.serving.crew.workers import Workers
from toolsvc.host.open_session import OpenSession
from toolwright.crew.v1 import crew_pb2 as pb

WORKERS = 2
ENOUGH = 150
"""Schedules in which a planted bug must show."""
STRAY = 54
"""A schedule in which a worker calls in a session that another one has taken over."""
NO_ROOM = 137
"""A schedule in which a worker dies while its sessions are all that the tool service takes."""


@pytest.fixture(scope="module")
def place() -> Iterator[Studio]:
    with studio() as made:
        yield made


@pytest.mark.quick
def test_a_seed_gives_one_history_that_keeps_every_promise(place: Studio) -> None:
    for seed in range(2):
        first = outcome(place, schedule_of(seed, WORKERS))
        assert first.failure is None, first.failure.text
        again = place.play(schedule_of(seed, WORKERS))
        assert first.played is not None
        assert first.played.digest == again.digest


@pytest.mark.quick
def test_a_group_keeps_its_places_while_its_worker_dies(place: Studio) -> None:
    schedule = schedule_of(NO_ROOM, WORKERS)
    failure = outcome(place, replace(schedule, faults=schedule.faults[:2])).failure
    assert failure is None, failure.text


@pytest.mark.slow
def test_many_seeds_keep_every_promise(place: Studio) -> None:
    for seed in range(100, 130):
        failure = outcome(place, schedule_of(seed, WORKERS)).failure
        assert failure is None, f"seed {seed}: {failure.text}"


@pytest.mark.slow
def test_every_fault_of_workers_is_drawn_and_does_its_harm(place: Studio) -> None:
    faults = [fault for seed in range(40) for fault in schedule_of(seed, WORKERS).faults]
    workload = replace(schedule_of(1, WORKERS).workload, steps=2, branching=False)
    calm = place.play(Schedule(seed=1, workload=workload))
    for kind in sorted(set(ON_WORKERS)):
        fault = next(fault for fault in faults if fault.kind is kind)
        harm = replace(fault, at=0.3, after="LifeBegan", number=1, seconds=14.0, target=0)
        found = outcome(place, Schedule(seed=1, workload=workload, faults=(harm,)))
        assert found.failure is None, found.failure.text
        assert found.played is not None
        assert found.played.counts[f"fault {kind}"] == 1
        assert found.played.digest != calm.digest


@pytest.mark.quick
def test_a_worker_that_wakes_after_its_work_went_on_elsewhere_is_fenced_off(
    monkeypatch: pytest.MonkeyPatch, place: Studio
) -> None:
    schedule = schedule_of(STRAY, WORKERS)
    found = outcome(place, schedule)
    assert found.failure is None, found.failure.text
    assert found.played is not None
    assert found.played.counts[f"fault {Kind.WORKER_STRAY}"] == 1
    monkeypatch.setattr(OpenSession, "check_fence", lambda _self, _fence: None)
    unfenced = place.play(schedule)
    assert "no_call_below_a_fence" in {one.invariant.name for one in violations(unfenced.history)}


def logs_of_the_dead_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of a dead worker begin anew, although their events are durable."""

    async def nothing(_self: Workers, _trajectories: Any) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(Workers, "open_logs", nothing)


def reports_count_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that is sent again on a new stream is taken again."""
    take = ReportIntake.take

    def forgetful(self: ReportIntake, link: WorkerLink, report: pb.Report) -> None:
        link.received = min(link.received, report.sequence - 1)
        take(self, link, report)

    monkeypatch.setattr(ReportIntake, "take", forgetful)


def requests_of_the_dead_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator does not abort what a dead worker left at the samplers."""

    async def nothing(_self: Fleet, _prefix: str) -> None:
        pass

    monkeypatch.setattr(Fleet, "abort", nothing)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant", [logs_of_the_dead_are_lost, reports_count_twice, requests_of_the_dead_go_on]
)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, place: Studio, plant: Any) -> None:
    plant(monkeypatch)
    found = (outcome(place, schedule_of(seed, WORKERS)).failure for seed in range(ENOUGH))
    failure = next(filter(None, found), None)
    assert failure is not None
