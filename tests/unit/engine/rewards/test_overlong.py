"""What length costs: a part of the reward, in training alone, never beside a mask of length."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.core.rewards.overlong import overlong
from engine.core.rewards.score import REWARD_FAILED, Score, failure
from engine.core.rewards.settle import settled
from engine.core.rewards.stops import StopRules
from tests.support.finished_trajectories import observed, prompt, trajectory, wrote
from toolwright.recipe import TaskTable
from toolwright.types import (
    Purpose,
    RewardPart,
    Task,
    Trajectory,
)

RIGHT = Score(reward=1.0, parts=(RewardPart(name="right", value=1.0),))


def table(**changes: Any) -> TaskTable:
    given = {"overlong": {"max": 20, "buffer": 10}, **changes}
    return TaskTable.model_validate({"source": "s", "reward": "r", **given})


def rollout(written: int, seen: int = 0, **task: Any) -> Trajectory:
    """A prompt of 50 tokens, an action and an observation."""
    segments = (prompt(50), wrote(written, trainable=True), observed(seen))
    return trajectory(0, *segments, task=Task(id="q", **task))


def test_the_penalty_is_a_part_of_the_reward() -> None:
    rules = StopRules.of(table())
    done = settled(rollout(15, seen=100), RIGHT, rules)
    assert done.reward == 0.5
    assert done.reward_parts == (
        RewardPart(name="right", value=1.0),
        RewardPart(name="overlong", value=-0.5),
    )
    assert not done.masked
    assert settled(rollout(10), RIGHT, rules).reward_parts == RIGHT.parts  # nothing to say
    assert settled(rollout(300), RIGHT, rules).reward == 0.0


def test_evaluations_and_lost_trajectories_pay_nothing() -> None:
    rules = StopRules.of(table())
    assert settled(rollout(99, purpose=Purpose.EVAL), RIGHT, rules).reward == 1.0
    assert settled(rollout(99), None, rules).reward_parts == ()
    failed = settled(rollout(99), failure(REWARD_FAILED, "KeyError"), rules)
    assert (failed.reward, failed.reward_parts) == (0.0, ())


def test_a_rule_that_sets_the_reward_sets_it_whatever_the_length() -> None:
    rules = StopRules.of(table(stops={"answered": "mask:0.25"}))
    done = settled(rollout(99), RIGHT, rules)
    assert done.reward == 0.25
    assert sum(part.value for part in done.reward_parts) == 0.25


@given(st.integers(0, 60), st.integers(1, 40), st.integers(0, 40), st.floats(0.1, 3.0))
def test_it_only_falls_and_no_lower_than_its_factor(
    length: int, most: int, buffer: int, factor: float
) -> None:
    buffer = min(buffer, most)
    here, longer = (overlong(n, most, buffer, factor) for n in (length, length + 1))
    assert -factor <= longer <= here <= 0
    assert overlong(most - buffer, most, buffer, factor) == 0
    assert overlong(most + 1, most, buffer, factor) == -factor


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mask_overlong": True}, "mask_overlong = false or leave"),
        ({"overlong": {"max": 10, "buffer": 11}}, "at most max = 10"),
        ({"limits": {"response": 10}}, "lower overlong.max"),
        ({"overlong": {"max": 10, "buffer": 1, "facto": 1}}, "facto"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        table(**changes)


def test_observations_count_where_the_recipe_says_so() -> None:
    every = StopRules.of(table(overlong={"max": 20, "buffer": 10, "factor": 2.0, "count": "all"}))
    assert settled(rollout(5, seen=10), RIGHT, every).reward == 0.0
