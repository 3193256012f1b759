"""A step that teaches nothing says why, with its counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from learner.config.objective import Advantage, Credit
from learner.credit.assign import assigned
from learner.loop.worth import why_worthless
from learner.training.batch import rows_of
from tests.integration.learner.fake_engine import random_group
from toolwright.types import Event, Group, StopReason, Trajectory, WeightVersion

V = WeightVersion(lineage="a", step=0)
Change = Callable[[Trajectory], Trajectory]


def reason_of(
    change: Change, *, groups: int = 4, size: int = 4, settings: Advantage | None = None
) -> str | None:
    """What is said of groups whose members were changed so."""
    made = [
        Group(id=f"g{n}", trajectories=tuple(map(change, random_group(n, V, Path(), size=size))))
        for n in range(groups)
    ]
    rows = [
        row for group in made for t in group.trajectories for row in rows_of(t, temperature=1.0)
    ]
    rows, _ = assigned(rows, made, settings or Advantage(), Credit())
    return why_worthless(made, rows)


def failed(member: Trajectory) -> Trajectory:
    error = Event(kind="reward", turn=0, data={"error": "my_reward.py line 12:\nKeyError 'answer'"})
    return replace(member, masked=True, stop_reason=StopReason.REWARD_ERROR, events=(error,))


def without_loss(member: Trajectory) -> Trajectory:
    (sequence,) = member.sequences
    segments = tuple(replace(segment, trainable=False) for segment in sequence.segments)
    return replace(member, sequences=(replace(sequence, segments=segments),))


def without_difference(member: Trajectory) -> Trajectory:
    return replace(member, reward=0.5)


def test_a_step_with_a_signal_has_no_reason() -> None:
    assert reason_of(lambda member: member) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (failed, ("16 of 16", "masked", "reward_error 16", "KeyError 'answer'")),
        (without_loss, ("16 of 16", "loss", "answered 16")),
        (without_difference, ("4 of 4 groups", "equal", "16 of 16 are 0.5")),
    ],
)
def test_the_reason_has_its_count(change: Change, said: tuple[str, ...]) -> None:
    reason = reason_of(change)
    assert reason is not None and all(word in reason for word in said)


def test_rewards_that_differ_where_nothing_is_learnt_are_not_called_equal() -> None:
    """By default the tasks have no data source, which is a name like any other."""
    said = reason_of(lambda member: member, settings=Advantage(weights={"": 0.0}))
    assert said is not None
    assert said.startswith("4 of 4 groups without a signal: what differs in their rewards")

    def change(member: Trajectory) -> Trajectory:
        return replace(member, masked=member.index % 2 == 0)

    outside = reason_of(lambda m: replace(change(m), outside_baseline=m.index % 2 == 0))
    assert outside is not None
    assert "members outside of the baseline" in outside


def test_lone_members_are_the_reason() -> None:
    assert "4 of 4 groups have one member" in str(reason_of(lambda member: member, size=1))
