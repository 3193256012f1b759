"""A reward that is no number leaves before anything is compared with it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from learner.intake.lease import without_nonfinite
from tests.integration.learner.fake_engine import random_group
from toolwright.types import Group, RewardPart, WeightVersion

V = WeightVersion(lineage="a", step=0)


def group(number: int) -> Group:
    return Group(id=f"g{number}", trajectories=tuple(random_group(number, V, Path(), size=3)))


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
