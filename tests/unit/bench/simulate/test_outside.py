"""Outside agents on the virtual clock: kills and cuts break no promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from bench.simulate.outside.plan import OutsideFault, outside_plan
from bench.simulate.outside.run import LOST, OutsideStudio, outside_studio
from engine.core.rollout.outside_attempt import OutsideAttempt
from engine.serving.ingress.agents import Agents

QUICK = 16
"""Plans of the quick tier, some 2 s of CPU."""
POINTS = 200
"""Kills of a kind in the slow tier."""
ENOUGH = range(60, 180)
"""Plans in which a planted bug must show."""


@pytest.fixture(scope="module")
def place() -> Iterator[OutsideStudio]:
    with outside_studio() as made:
        yield made


def keeps_its_promises(place: OutsideStudio, seed: int, *kinds: OutsideFault) -> Counter[str]:
    """The faults of a plan, which must break nothing."""
    plan = outside_plan(seed, kinds or tuple(OutsideFault))
    played = place.play(plan)
    assert not played.errors, "\n".join((f"{plan}", *played.errors))
    return played.faults


@pytest.mark.quick
def test_no_fault_breaks_a_promise(place: OutsideStudio) -> None:
    faults = Counter[str]()
    for seed in range(QUICK):
        faults += keeps_its_promises(place, seed)
    assert set(OutsideFault) <= set(faults)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "counted"),
    [
        (OutsideFault.ENGINE_KILL, OutsideFault.ENGINE_KILL),
        (OutsideFault.HTTP_KILL, OutsideFault.HTTP_KILL),
        (OutsideFault.AGENT_HOST_KILL, LOST),
    ],
)
def test_kills_at_two_hundred_points(
    place: OutsideStudio, kind: OutsideFault, counted: str
) -> None:
    kills, seed = 0, 1000
    while kills < POINTS:
        kills += keeps_its_promises(place, seed, kind)[counted]
        seed += 1


@pytest.mark.slow
def test_all_faults_together(place: OutsideStudio) -> None:
    for seed in range(2000, 2300):
        keeps_its_promises(place, seed)


def retries_are_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A marked retry is sampled again."""
    monkeypatch.setattr(OutsideAttempt, "known", lambda *_, **__: None)


def nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies and ends are answered before they are durable."""
    made = Agents.__init__

    async def at_once() -> None:
        pass

    def begin(self: Agents, keys: Any, _durable: Any, recorded: Any) -> None:
        made(self, keys, at_once, recorded)

    monkeypatch.setattr(Agents, "__init__", begin)


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(retries_are_samples, marks=pytest.mark.quick),
        pytest.param(nothing_waits_for_the_disk, marks=pytest.mark.slow),
    ],
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, place: OutsideStudio, plant: Any
) -> None:
    plant(monkeypatch)
    assert any(place.play(outside_plan(seed)).errors for seed in ENOUGH)
