"""What follows a failed request, by numbers alone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.core.sampler.retry import BACKOFF, Again, Fault, Over, Retry

PASSING = [Fault.BROKEN, Fault.SILENT, Fault.MALFORMED, Fault.ABORTED]


@pytest.fixture(autouse=True)
def whole_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No jitter: each pause is its longest."""
    monkeypatch.setattr(random, "uniform", lambda _low, high: high)


def retry(*, patience: float = 300.0, images: bool = False) -> Retry:
    return Retry(patience=patience, images=images)


def fails(machine: Retry, fault: Fault, now: float, **how: Any) -> Again | Over:
    return machine.failed(fault, now=now, **{"brought": 0, "others": False, "lives": False, **how})


@pytest.mark.parametrize("fault", PASSING)
def test_pauses_grow_up_to_the_longest(fault: Fault) -> None:
    machine = retry()
    pauses = []
    for _ in range(12):
        decision = fails(machine, fault, 0.0)
        assert isinstance(decision, Again)
        pauses.append(decision.after)
    assert pauses == sorted(pauses)
    assert BACKOFF.first <= pauses[0] < 1
    assert pauses[-1] == BACKOFF.longest


@pytest.mark.parametrize("fault", PASSING)
def test_the_budget_is_time_and_not_tries(fault: Fault) -> None:
    machine = retry(patience=300.0)
    assert all(isinstance(fails(machine, fault, n / 10), Again) for n in range(3000))
    assert fails(machine, fault, 300.5) == Over()


def test_a_token_renews_the_budget() -> None:
    machine = retry(patience=10.0)
    for now in range(0, 200, 8):
        assert isinstance(fails(machine, Fault.BROKEN, float(now), brought=1), Again)
    assert fails(machine, Fault.BROKEN, 204.0) == Over()


def test_time_without_any_sampler_is_no_failure() -> None:
    machine = retry(patience=10.0)
    fails(machine, Fault.BROKEN, 0.0)
    machine.waited(540.0)
    assert isinstance(fails(machine, Fault.BROKEN, 545.0), Again)
    assert fails(machine, Fault.BROKEN, 551.0) == Over()


def test_another_sampler_is_asked_at_once_the_first_time() -> None:
    machine = retry()
    first, second = (fails(machine, Fault.BROKEN, 0.0, others=True) for _ in range(2))
    assert first == Again(0.0)
    assert isinstance(second, Again)
    assert second.after > 0


def test_a_refused_request_is_asked_of_the_others_and_then_given_up_for_good() -> None:
    machine = retry()
    for now in range(3):
        assert fails(machine, Fault.REFUSED, float(now), others=True) == Again(0.0)
    assert fails(machine, Fault.REFUSED, 3.0) == Over(permanent=True)


def test_what_is_refused_after_tokens_came_may_not_be_the_callers_fault() -> None:
    machine = retry()
    fails(machine, Fault.BROKEN, 0.0, brought=3)
    assert fails(machine, Fault.REFUSED, 1.0) == Over(permanent=False)


def test_images_that_break_a_server_twice_are_given_up() -> None:
    """A server that lives and drops the request unanswered; tokens begin the count anew."""
    machine = retry(images=True)
    drops = [fails(machine, Fault.BROKEN, 0.0, lives=True) for _ in range(2)]
    assert isinstance(drops[0], Again)
    assert drops[1] == Over()
    machine = retry(images=True)
    for brought in (0, 1) * 3:
        assert isinstance(fails(machine, Fault.BROKEN, 0.0, lives=True, brought=brought), Again)
    machine = retry()
    assert all(isinstance(fails(machine, Fault.BROKEN, 0.0, lives=True), Again) for _ in range(9))
