"""When a policy has collapsed, and when its figures only look like it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from toolwright.credit.collapse import CollapseWatch, collapse_of

pytestmark = pytest.mark.quick

WELL = {
    "reward": 0.6, "entropy": 0.5, "calls": 1.2, "truncated_fraction": 0.1, "kl_reference": 0.05,
    "learning_rate": 9e-4,
}  # fmt: skip
STEPS = [(step, WELL) for step in range(1, 11)]


def after(**changes: float | None) -> list[tuple[int, Mapping[str, float]]]:
    values = {name: value for name, value in {**WELL, **changes}.items() if value is not None}
    return [*STEPS, *((step, values) for step in (11, 12, 13))]


@pytest.mark.parametrize(
    ("changes", "sign"),
    [
        ({"entropy": 0.001}, "entropy fell from 0.5 to 0.001"),
        ({"calls": 0.0}, "calls a trajectory fell from 1.2 to 0"),
        ({"truncated_fraction": 0.98}, "98% of the trajectories end at a limit"),
        ({"kl_reference": 40.0}, "kl_reference rose from 0.05 to 40"),
        ({"kl_rollout_k3": 3.0}, "kl_rollout_k3 rose from 0 to 3"),
    ],
)
def test_each_sign_with_a_fallen_reward_is_a_collapse(
    changes: Mapping[str, float], sign: str
) -> None:
    found = collapse_of(after(reward=0.05, **changes))
    assert found is not None
    assert found.sentence == (
        f"collapsed at update 11, lr is 0.0009: {sign}, the reward, 0.6 at best, fell to 0.05"
    )


@pytest.mark.parametrize(
    "steps",
    [
        after(entropy=0.001, calls=0.0, reward=0.9),  # it answers at once, and right
        after(reward=0.05),  # a harder stretch of tasks
        after(entropy=0.001, reward=0.05)[:-1],  # two steps
        [*after(entropy=0.001, reward=0.05), (14, WELL)],  # it recovered
        [(step, {**WELL, "entropy": 0.001, "reward": 0.0}) for step in range(1, 30)],
        after(reward=0.05, kl_reference=0.9),
        [(1, {}), (2, {"reward": 1e300}), (3, {"reward": -1e300})],
        [],
    ],
    ids=["solved", "reward-alone", "two-steps", "recovered", "never-well", "small-kl", "odd", "no"],
)
def test_what_is_no_collapse(steps: list[tuple[int, Mapping[str, float]]]) -> None:
    assert collapse_of(steps) is None


def test_all_masked_counts_as_a_fallen_reward_and_negative_rewards_are_compared() -> None:
    found = collapse_of(after(reward=None, truncated_fraction=1.0))
    assert found is not None
    assert found.sentence.endswith("the reward, 0.6 at best, is gone")
    low = [(step, {**WELL, "reward": -0.2}) for step in range(1, 8)]
    fell = [(step, {**WELL, "reward": -0.5, "calls": 0.0}) for step in range(8, 11)]
    assert collapse_of([*low, *fell]) is not None


def test_an_earlier_life_is_compared_with_and_begins_no_streak() -> None:
    watch = CollapseWatch()
    steps = after(entropy=0.001, reward=0.05)
    watch.remember(steps)
    _, bad = steps[-1]
    assert watch.add(14, bad) is None
    assert watch.add(15, bad) is None
    found = watch.add(16, bad)
    assert found is not None
    assert found.step == 14
