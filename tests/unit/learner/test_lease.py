"""A step has exactly its groups. A reward that is no number leaves before others are compared."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from learner.intake.lease import lease_step, without_nonfinite
from learner.intake.ledger import Ledger
from tests.integration.learner.fake_engine import random_group
from toolwright.types import Group, RewardPart, WeightVersion

V = WeightVersion(lineage="a", step=0)


def group(number: int) -> Group:
    return Group(id=f"g{number}", trajectories=tuple(random_group(number, V, Path(), size=3)))


class Engine:
    """Has many groups; a lease brings `first` of them, and later ones all that they ask for."""

    def __init__(self, first: int) -> None:
        self._most = first

    def lease(self, *, after: int, count: int, version: WeightVersion, wait: float) -> list[Group]:
        most, self._most = min(count, self._most), 99
        return [replace(group(n), sequence_number=n) for n in range(after + 1, after + 1 + most)]


@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_a_step_has_exactly_its_groups_however_they_come(first: int) -> None:
    ledger = Ledger()
    leased = lease_step(
        Engine(first), ledger, version=V, count=3, wait=0.0, say=lambda _line: None,
        heartbeat=lambda: None, why_none=lambda: "", waiting=nullcontext,
    )  # fmt: skip
    assert [one.sequence_number for one in leased.groups] == [1, 2, 3]
    assert ledger.mark == 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e39])
def test_the_trajectory_leaves_and_its_group_stays(value: float) -> None:
    one, two = group(1), group(2)
    first, second, third = two.trajectories
    part = replace(third, reward_parts=(RewardPart(name="answer", value=value),))
    broken = replace(two, trajectories=(replace(first, reward=value), second, part))
    kept, left = without_nonfinite([one, broken])
    assert left == (first.id, third.id)
    assert kept == (one, replace(two, trajectories=(second,)))


def test_a_group_of_nothing_else_goes_with_it() -> None:
    one = group(1)
    broken = replace(one, trajectories=tuple(replace(t, reward=math.nan) for t in one.trajectories))
    assert without_nonfinite([broken])[0] == ()
    assert without_nonfinite([one]) == ((one,), ())
