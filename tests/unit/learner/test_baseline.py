"""Whose rewards a group is measured against: masks and the baseline are two things."""

from __future__ import annotations

import pytest

from learner.config.objective import Advantage
from learner.credit.episode import compared
from learner.credit.members import members_of
from toolwright.types import Group, Status, StopReason, Task, Trajectory


def group(name: str, *rewards: float, masked: str = "", outside: str = "") -> Group:
    """Members are called name0, name1 ..; masked, outside: their numbers."""
    return Group(
        id=name,
        trajectories=tuple(
            Trajectory(
                id=f"{name}{index}",
                group_id=name,
                task=Task(id=name),
                sequences=(),
                status=Status.COMPLETED,
                stop_reason=StopReason.ANSWERED,
                reward=reward,
                masked=str(index) in masked,
                outside_baseline=str(index) in outside,
            )
            for index, reward in enumerate(rewards)
        ),
    )


PLAIN = Advantage(std="none")


def advantages_of(groups: list[Group], settings: Advantage) -> dict[str, float]:
    """By trajectory id."""
    members = members_of(groups, [])
    rewards = [member.trajectory.reward for member in members]
    values = compared(rewards, members, settings)
    return {m.trajectory.id: value for m, value in zip(members, values, strict=True)}


def test_a_masked_member_inside_the_baseline_counts_in_it() -> None:
    values = advantages_of([group("g", 1, 0, 0, 0, masked="3")], PLAIN)
    assert [values[f"g{i}"] for i in range(3)] == pytest.approx([0.75, -0.25, -0.25])


def test_a_member_outside_of_the_baseline_enters_neither_mean_nor_deviation() -> None:
    kept = advantages_of([group("g", 1, 0, 0, 0)], Advantage(std="sample"))
    with_outsiders = advantages_of(
        [group("g", 1, 0, 0, 0, 99, -99, masked="4", outside="45")], Advantage(std="sample")
    )
    assert {name: with_outsiders[name] for name in kept} == pytest.approx(kept)
    # One that still carries loss is measured against the others.
    assert with_outsiders["g5"] == pytest.approx((-99 - 0.25) / (0.5 + 1e-6))


def test_a_lone_member_of_the_baseline_is_a_lone_rollout() -> None:
    for outside in ("12", "012"):  # one is left, none is left
        some = [group("g", 2, 7, 9, masked="12", outside=outside)]
        assert advantages_of(some, Advantage(singleton="zero"))["g0"] == 0.0
        assert advantages_of(some, Advantage(singleton="raw", eps=1e-6))["g0"] == pytest.approx(2.0)


def test_against_a_constant_baseline_an_outsider_gets_no_signal() -> None:
    """Dividing by a deviation of 0 would make its advantage astronomic."""
    assert set(advantages_of([group("g", 1, 1, 5, outside="2")], Advantage()).values()) == {0.0}
