"""`bench study counterfactual-rewards`: what counts as a change, and the variants' options."""

from __future__ import annotations

import pytest

from bench.errors import BenchError
from bench.studies.counterfactual_rewards import (
    VARIANTS,
    compared,
    rewarded,
    rewards,
    spearman,
)
from tests.support.finished_trajectories import trajectory

pytestmark = pytest.mark.quick


def test_a_flip_is_an_advantage_of_the_opposite_sign() -> None:
    assert compared([1.0, 0.0, 0.5], [0.0, 1.0, 0.5]) == {
        "members": 3,
        "flips": 2,
        "signal_changes": 0.0,
        "compared": 1.0,
        "correlation": pytest.approx(-1.0),
    }


def test_a_group_that_varies_under_one_reward_alone_has_no_correlation() -> None:
    found = compared([1.0, 1.0], [1.0, 0.9])
    assert (found["flips"], found["signal_changes"], found["compared"]) == (0, 1.0, 0.0)


def test_ties_share_their_ranks() -> None:
    # By hand: ranks 1.5 1.5 3 and 1 2 3 give 1.5 / (1.5 * 2) ** 0.5.
    assert spearman([0.0, 0.0, 1.0], [0.0, 0.5, 1.0]) == pytest.approx(1.5 / 3**0.5)


def test_every_variant_has_options_that_the_reward_takes() -> None:
    _, variants = rewards()
    assert set(variants) == set(VARIANTS)


def test_a_recording_of_other_rewards_is_refused() -> None:
    """Such as one whose trajectories lack the texts of their actions."""
    one = trajectory(reward=0.9)
    assert rewarded([one], lambda _: 0.9) == [0.9]
    with pytest.raises(BenchError, match=r"was rewarded 0\.9 and is rewarded -0\.03 now"):
        rewarded([one], lambda _: -0.03)
