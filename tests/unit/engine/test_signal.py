"""Dynamic sampling: which groups are discarded, and how many at most."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.serving.admission.dynamic_sampling import (
    MOST_EMPTY_ROUNDS,
    GroupFilter,
    dapo_filter,
    has_signal,
)
from tests.support.finished_trajectories import trajectory
from toolwright.recipe import DynamicSampling
from toolwright.types import RewardPart, Trajectory


def member(reward: float, **fields: Any) -> Trajectory:
    return trajectory(reward=reward, **fields)


def lost(reward: float = 0.0) -> Trajectory:
    """What infrastructure ended."""
    return member(reward, masked=True, outside_baseline=True)


VARIES = [member(0.0), member(1.0)]
UNIFORM = [member(1.0), member(1.0)]


def group_filter(most: int = 0, *, groups: int = 2, metric: str = "") -> GroupFilter:
    return GroupFilter(DynamicSampling(metric=metric, max_gen_batches=most), groups_per_step=groups)


def test_filter_keeps_groups_that_vary_in_their_order() -> None:
    pairs = [("c", 1.0), ("a", 0.0), ("b", 1.0), ("a", 1.0), ("c", 1.0)]
    assert dapo_filter(pairs) == ["a", "b"]
    assert dapo_filter([]) == []


@pytest.mark.parametrize(
    ("group", "signal"),
    [
        (VARIES, True),
        (UNIFORM, False),
        ([member(1.0)], True),  # a lone rollout
        ([member(1.0), lost()], True),  # and one whose fellow infrastructure ended
        ([member(1.0), member(1.0), lost()], False),  # which is no variation
        ([lost(), lost(1.0)], False),
        ([member(1.0, masked=True), member(1.0)], False),
        ([member(0.0, masked=True), member(1.0)], True),  # masked, and in the baseline
        ([member(0.0, masked=True), member(1.0, masked=True)], False),  # nothing carries loss
    ],
)
def test_a_group_has_a_signal_where_its_baseline_varies(
    group: list[Trajectory], signal: bool
) -> None:
    assert has_signal(group) is signal


def test_a_part_of_the_reward_can_be_the_metric() -> None:
    def parted(right: float, style: float) -> Trajectory:
        parts = (RewardPart(name="right", value=right), RewardPart(name="style", value=style))
        return member(right + style, reward_parts=parts)

    group = [parted(1.0, 0.1), parted(1.0, 0.2)]
    assert has_signal(group)
    assert not has_signal(group, "right")
    assert has_signal(group, "style")
    of_a_turn = member(0.0, reward_parts=(RewardPart(name="s", value=1.0, turn=0),))
    assert has_signal([of_a_turn, member(0.0)], "s")  # who lacks the part has 0 of it


def test_a_batch_costs_no_more_than_its_rounds() -> None:
    """Two groups a batch, three rounds: six groups are sampled, then what comes is kept."""
    mine = group_filter(3)
    assert [mine.turns_away(UNIFORM) for _ in range(6)] == [True] * 4 + [False] * 2
    assert mine.turns_away(UNIFORM)  # the next batch has rounds of its own
    assert not mine.fruitless


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 4), st.integers(1, 3))
def test_every_batch_is_full_within_its_rounds(varied: list[bool], most: int, groups: int) -> None:
    mine, sampled, kept = group_filter(most, groups=groups), 0, 0
    for varies in varied:
        away = mine.turns_away(VARIES if varies else UNIFORM)
        assert not (varies and away)
        sampled, kept = sampled + 1, kept + (not away)
        assert sampled <= most * groups
        if kept == groups:
            sampled = kept = 0


def test_what_never_varies_ends_with_a_sentence() -> None:
    mine = group_filter()
    enough = MOST_EMPTY_ROUNDS * 2
    for _ in range(enough - 1):
        assert mine.turns_away(UNIFORM)
    assert not mine.fruitless
    assert mine.turns_away([member(0.0), member(0.0)])
    assert "discarded 40 groups in a row" in mine.fruitless
    assert "1 78, 0 2 of 80 rollouts" in mine.fruitless
    mine.turns_away(VARIES)  # it was in flight
    assert not mine.fruitless


def test_a_metric_that_no_rollout_has_is_named() -> None:
    mine = group_filter(metric="acc", groups=1)
    other = (RewardPart(name="accuracy", value=1.0),)
    group = [replace(one, reward_parts=other) for one in VARIES]
    for _ in range(MOST_EMPTY_ROUNDS):
        assert mine.turns_away(group)
    assert "no rollout has that part, they have: accuracy" in mine.fruitless
