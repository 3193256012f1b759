"""Whole runs on the virtual clock: they repeat, they keep every promise, and planted bugs show."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bench.history.events import Fault
from bench.history.validator import unjudged
from bench.simulate.campaign import Totals, played
from bench.simulate.playing.play import Studio, studio
from bench.simulate.schedule import ON_WORKERS, Kind, Schedule, schedule_of
from bench.simulate.verdict import outcome, shortest
from engine.core.rollout import attempt_start
from engine.core.sampler.token_action import TokenAction
from engine.serving.admission import train

pytestmark = pytest.mark.quick

ENOUGH = 30
"""Schedules in which a planted bug must show."""


@pytest.fixture(scope="module")
def place() -> Iterator[Studio]:
    with studio() as made:
        yield made


def first_failure(place: Studio, most: int) -> tuple[Schedule, str] | None:
    for seed in range(most):
        schedule = schedule_of(seed)
        failure = outcome(place, schedule).failure
        if failure is not None:
            return schedule, failure.invariant
    return None


def test_a_seed_gives_one_history(place: Studio) -> None:
    for seed in range(6):
        first, second = (place.play(schedule_of(seed)) for _ in range(2))
        assert first.digest == second.digest
        assert first.history == second.history


def test_other_seeds_give_other_histories(place: Studio) -> None:
    assert len({place.play(schedule_of(seed)).digest for seed in range(6)}) == 6


@pytest.mark.slow
def test_two_processes_and_any_number_of_jobs_give_one_digest() -> None:
    def run(jobs: int) -> str:
        command = [sys.executable, "-m", "bench.cli", "simulate"]
        found = subprocess.run(
            [*command, "--schedules", "12", "--seed", "3", "--jobs", str(jobs)],
            capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        return found.stdout.splitlines()[-1]

    assert run(1) == run(2)


def test_every_kind_of_fault_is_drawn_and_does_its_harm(place: Studio) -> None:
    faults = [fault for seed in range(300) for fault in schedule_of(seed).faults]
    kinds = set(Kind) - {*ON_WORKERS, Kind.WORKER_STRAY}
    assert {fault.kind for fault in faults} == kinds
    workload = replace(schedule_of(1).workload, servers=2, steps=2, branching=False)
    calm = place.play(Schedule(seed=1, workload=workload)).history
    for kind in sorted(kinds):
        fault = next(fault for fault in faults if fault.kind is kind)
        harm = replace(fault, at=0.3, after="LifeBegan", number=1, seconds=0.2, target=0)
        found = outcome(place, Schedule(seed=1, workload=workload, faults=(harm,)))
        assert found.failure is None, found.failure.text
        assert found.played is not None
        assert found.played.counts[f"fault {kind}"] == 1
        harmed = [event for event in found.played.history if not isinstance(event, Fault)]
        assert harmed != calm, f"{kind} does nothing"


@pytest.mark.slow
def test_histories_give_evidence_of_every_invariant(place: Studio) -> None:
    without: set[str] | None = None
    for seed in range(40):
        names = set(unjudged(place.play(schedule_of(seed)).history))
        without = names if without is None else without & names
        if not without:
            break
    assert not without


def test_totals_add_up(place: Studio) -> None:
    totals = Totals()
    for seed in range(3):
        totals.add(played(place, seed, shrink=False))
    assert totals.schedules == 3
    assert totals.counts["Finished"] == 3
    assert totals.virtual_s > 3 * 10
    assert totals.failures == []


def double_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of staleness is a batch too wide."""
    wide = train.staleness_room
    monkeypatch.setattr(
        train, "staleness_room", lambda **given: wide(**{**given, "eta": given["eta"] + 1})
    )


def lost_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that goes on forgets the last token that it has."""
    begin = TokenAction.begin

    def forgetful(self: TokenAction, now_ns: int) -> None:
        if self.token_ids:
            self.token_ids.pop()
            self.logprobs.pop()
        begin(self, now_ns)

    monkeypatch.setattr(TokenAction, "begin", forgetful)


@pytest.mark.parametrize(
    ("plant", "invariants"),
    [
        (double_admission, {"admission_keeps_the_bound"}),
        (
            lost_token,
            {
                "prompts_are_prefixes",
                "model_ids_were_sent",
                "prompts_grow",
                "attempts_end_for_a_reason",
            },
        ),
    ],
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, place: Studio, plant: object, invariants: set[str]
) -> None:
    assert callable(plant)
    plant(monkeypatch)
    found = first_failure(place, ENOUGH)
    assert found is not None
    assert found[1] in invariants


@pytest.mark.slow
def test_a_bug_that_needs_faults_is_found_and_its_faults_are_shrunk(
    monkeypatch: pytest.MonkeyPatch, place: Studio
) -> None:
    """Sessions that ran what the log does not know are gone on with: that takes a kill.

    One schedule in fifty shows it, and which one changes with the engine.
    """
    monkeypatch.setattr(attempt_start, "_is_logged", lambda _call_id, _state: True)
    found = first_failure(place, 400)
    assert found is not None
    schedule, invariant = found
    short = shortest(place, schedule, invariant)
    assert Kind.ENGINE_KILL in {fault.kind for fault in short}
    assert len(short) <= len(schedule.faults)
    again = outcome(place, schedule.with_faults(short)).failure
    assert again is not None
    assert again.invariant == invariant
