"""From the record to an advantage a token: every estimator and every credit of turns."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.config.objective import Advantage, Credit, Distill
from learner.credit.assign import assigned
from tests.unit.learner.records import (
    Step,
    advantages,
    batches,
    credited,
    credits,
    group,
    rows,
    sequence,
    trajectory,
)
from toolwright.credit.estimators import ESTIMATORS
from toolwright.types import Author, Group

EXACT = Advantage(std="population", eps=0.0)


@settings(max_examples=150)
@given(batches(), advantages, credits, st.randoms(use_true_random=False))
def test_the_order_of_groups_and_members_changes_nothing(
    groups: list[Group], advantage: Advantage, credit: Credit, random: Any
) -> None:
    shuffled = [
        replace(one, trajectories=tuple(random.sample(one.trajectories, len(one.trajectories))))
        for one in random.sample(groups, len(groups))
    ]
    found, expected = credited(shuffled, advantage, credit), credited(groups, advantage, credit)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, abs=1e-5)


@settings(max_examples=100)
@given(batches(), advantages, credits)
def test_what_tools_said_and_how_likely_it_was_changes_nothing(
    groups: list[Group], advantage: Advantage, credit: Credit
) -> None:
    """Longer observations are input and neither shift, dilute nor discount anything."""

    def longer(one: Group) -> Group:
        return replace(
            one,
            trajectories=tuple(
                replace(
                    t,
                    sequences=tuple(
                        replace(
                            q,
                            segments=tuple(
                                s
                                if s.author is Author.MODEL
                                else replace(s, token_ids=[*s.token_ids, 7, 7, 7])
                                for s in q.segments
                            ),
                        )
                        for q in t.sequences
                    ),
                )
                for t in one.trajectories
            ),
        )

    assert credited([longer(one) for one in groups], advantage, credit) == credited(
        groups, advantage, credit
    )


@settings(max_examples=100)
@given(batches(), advantages, credits)
def test_all_rewards_equal_teach_exactly_nothing(
    groups: list[Group], advantage: Advantage, credit: Credit
) -> None:
    """Whatever rounding makes of a mean. Lone members, who keep their rewards, are left aside."""
    same = [
        replace(
            one,
            trajectories=tuple(
                replace(t, reward=0.1, reward_parts=(), outside_baseline=False)
                for t in one.trajectories
            ),
        )
        for one in groups
        if len(one.trajectories) > 1
    ]
    whole = advantage.model_copy(update={"discount": 1.0})
    alone = credit.model_copy(update={"outcome_in_return": False})
    done, facts = assigned(rows(same), same, whole, alone)
    assert not any(row.advantage.any() for row in done)
    assert all(row.silent for row in done)
    assert facts.get("advantage_zero_fraction", 1.0) == 1.0


def test_nothing_gives_nothing() -> None:
    for estimator in ESTIMATORS:
        assert assigned([], [], Advantage(estimator=estimator), Credit(turns="anchor")) == ([], {})


# by hand


def pair(**fields: Any) -> Group:
    """Two rollouts that both used `quad`, returns 0.25 and 0.05 there; one is right."""
    return group(
        "g",
        trajectory("a", "g", 1.0, [Step(reward=0.2, anchors=("quad",)), Step(reward=0.1)]),
        trajectory("b", "g", 0.0, [Step(reward=0.1, anchors=("quad",)), Step(reward=-0.1)]),
    )


def test_a_token_has_its_trajectory_s_advantage_and_its_turn_s() -> None:
    found = credited([pair()], EXACT, Credit(turns="anchor", weight=0.5))
    assert found["a"] == pytest.approx([1.5, 1.5, 1.0, 1.0])
    assert found["b"] == pytest.approx([-1.5, -1.5, -1.0, -1.0])


@pytest.mark.parametrize(
    ("credit", "first"),
    [
        (Credit(turns="none"), [0, 0, 0, 0]),
        (Credit(turns="alone"), [0.25, 0.25, 0.1, 0.1]),
        (Credit(turns="position"), [1, 1, 1, 1]),
        (Credit(turns="anchor", ignore=("quad",)), [0, 0, 0, 0]),
        (Credit(turns="anchor", ignore=("quad",), first_turn=True), [1, 1, 0, 0]),
        (Credit(turns="anchor", std="none"), [0.1, 0.1, 0, 0]),
        # R is on the last turn: 0.25 + 0.5 is compared with 0.05
        (Credit(turns="anchor", std="none", outcome_in_return=True), [0.35, 0.35, 0, 0]),
        (Credit(turns="group", std="none"), [0.175, 0.175, 0.025, 0.025]),
        # means over six turns: 0.35 / 6 and -0.05 / 6
        (Credit(turns="released"), [0.2 / 6] * 4),
        (Credit(turns="released", padded_turns=2), [0.1] * 4),
        (Credit(turns="released", ignore=("quad",)), [0, 0, 0, 0]),
    ],
)
def test_what_turns_are_compared_with(credit: Credit, first: list[float]) -> None:
    found = credited([pair()], EXACT, credit)["a"]
    assert [value - 1.0 for value in found] == pytest.approx(first, abs=1e-6)


def test_over_the_batch_turns_of_two_prompts_meet() -> None:
    groups = [
        group("g", trajectory("a", "g", 0.0, [Step(reward=0.3, anchors=("quad",))])),
        group("h", trajectory("b", "h", 0.0, [Step(reward=0.1, anchors=("quad",))])),
    ]
    assert credited(groups, EXACT, Credit(turns="anchor")) == {"a": [0, 0], "b": [0, 0]}
    batch = Credit(turns="anchor", scope="batch")
    assert credited(groups, EXACT, batch)["a"] == pytest.approx([1, 1])
    # A data source of its own is another batch.
    (other,) = groups[1].trajectories
    apart = [groups[0], group("h", replace(other, task=replace(other.task, data_source="s")))]
    alone = Advantage(std="population", eps=0.0, per_data_source=True)
    assert credited(apart, alone, batch)["a"] == [0, 0]


def test_turns_count_in_the_trajectory_where_the_recipe_says_so() -> None:
    found = credited([pair()], Advantage(std="none"), Credit(count_in_reward=True))
    assert found["a"] == pytest.approx([0.65] * 4)  # 1.3 and 0.0


def test_masked_turns_are_compared_with_and_those_outside_of_the_baseline_are_not() -> None:
    a, b = pair().trajectories
    masked = credited([group("g", a, replace(b, masked=True))], EXACT, Credit(turns="anchor"))
    assert masked == {"a": pytest.approx([2, 2, 1, 1])}
    outside = replace(b, outside_baseline=True)
    found = credited([group("g", a, outside)], Advantage(), Credit(turns="anchor"))
    assert found == {"a": [0] * 4, "b": [0] * 4}


def test_a_trajectory_in_two_sequences_has_its_turns_in_both() -> None:
    steps = [Step(reward=0.2, anchors=("quad",)), Step(reward=0.1)]
    two = (sequence("a.0", steps[:1]), sequence("a.1", steps[1:], first=1))
    a, b = pair().trajectories
    whole = credited([pair()], EXACT, Credit(turns="anchor"))
    parts = credited([group("g", replace(a, sequences=two), b)], EXACT, Credit(turns="anchor"))
    assert parts == whole


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_lone_rollout(estimator: Any) -> None:
    """It has nobody beside it: it keeps its reward or gets nothing; whitening takes the batch."""
    lone = group("g", trajectory("a", "g", 0.5, [Step()]))
    (first, *_) = credited([lone], Advantage(estimator=estimator))["a"]
    assert first == {"rloo": 0.5, "opo": 0.5}.get(estimator, 0.0)
    other = group("h", trajectory("b", "h", -0.5, [Step()]))
    (first, *_) = credited([lone, other], Advantage(estimator=estimator))["a"]
    white = 0.5 / math.sqrt(1 / 3)
    by_name = {"rloo": 0.5, "opo": 0.5, "reinforce_pp": white, "reinforce_pp_baseline": white}
    assert first == pytest.approx(by_name.get(estimator, 0.0), abs=1e-6)


def test_a_long_answer_weighs_more_in_the_baseline_of_opo() -> None:
    long = trajectory("a", "g", 1.0, [Step(tokens=6), Step(tokens=3)])
    short = trajectory("b", "g", 0.0, [Step(tokens=1)])
    found = credited([group("g", long, short)], Advantage(estimator="opo"))
    assert found == {"a": pytest.approx([0.1] * 9), "b": pytest.approx([-0.9])}


def test_returns_flow_back_over_observations_and_turns_are_paid_at_their_end() -> None:
    steps = [Step(tokens=2, seen=5, reward=4.0), Step(tokens=1, seen=0)]
    groups = [group("g", trajectory("a", "g", 1.0, steps), trajectory("b", "g", 0.0, [Step()]))]
    settings = Advantage(estimator="reinforce_pp", discount=0.5)
    returns = np.array([0.25, 0.5, 1.0, 0.0, 0.0])
    paid = np.array([2.25, 4.5, 1.0, 0.0, 0.0])
    for credit, expected in ((Credit(), returns), (Credit(count_in_reward=True), paid)):
        found = credited(groups, settings, credit)
        white = (expected - expected.mean()) / expected.std(ddof=1)
        assert [*found["a"], *found["b"]] == pytest.approx(white.tolist(), abs=1e-5)


@pytest.mark.parametrize("estimator", ["reinforce_pp", "reinforce_pp_baseline"])
def test_a_member_outside_of_the_baseline_is_whitened_and_whitens_nobody(estimator: Any) -> None:
    def batch(*more: Any) -> list[Group]:
        own = [trajectory(str(n), "g", float(n), [Step()]) for n in range(3)]
        return [group("g", *own, *more)]

    settings = Advantage(estimator=estimator)
    alone = credited(batch(), settings)
    far = trajectory("far", "g", 99.0, [Step()], outside_baseline=True)
    found = credited(batch(far), settings)
    assert found.pop("far")[0] > 90
    assert found == alone


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("turns", ["none", "anchor", "group"])
def test_a_reward_that_is_no_number_spoils_its_own_group_alone(estimator: Any, turns: Any) -> None:
    def batch(reward: float, part: float) -> list[Group]:
        broken = [
            trajectory(f"x{n}", "x", reward * n, [Step(reward=part, anchors=("quad",))])
            for n in (1, 2)
        ]
        return [pair(), group("x", *broken)]

    settings = Advantage(estimator=estimator)
    for credit in (Credit(turns=turns, scope="batch"), Credit(turns=turns, count_in_reward=True)):
        found = credited(batch(math.nan, math.nan), settings, credit)
        assert all(map(math.isfinite, found["a"] + found["b"]))
        assert any(found["a"])
        assert not any(map(math.isfinite, found["x1"] + found["x2"]))


def test_a_task_weighs_what_the_recipe_says() -> None:
    def batch() -> list[Group]:
        return [
            group(
                name,
                trajectory(f"{name}0", name, 1.0, [Step()], source=name),
                trajectory(f"{name}1", name, 0.0, [Step()], source=name),
            )
            for name in ("math", "search", "other")
        ]

    settings = Advantage(std="population", eps=0.0, weights={"math": 0.0, "search": 0.5})
    found = credited(batch(), settings)
    assert (found["math0"], found["search0"], found["other0"]) == ([0, 0], [0.5, 0.5], [1, 1])
    done, _ = assigned(rows(batch()), batch(), settings, Credit())
    assert [row.silent for row in done] == [True, True, False, False, False, False]


def test_scales_of_two_tasks_do_not_mix_where_the_recipe_says_so() -> None:
    def batch(scale: float) -> list[Group]:
        return [
            group(
                name,
                trajectory(f"{name}0", name, by, [Step()], source=name),
                trajectory(f"{name}1", name, 0.0, [Step()], source=name),
            )
            for name, by in (("math", 1.0), ("search", scale))
        ]

    mixed, apart = (
        Advantage(estimator="reinforce_pp", per_data_source=one) for one in (False, True)
    )
    assert credited(batch(1), apart)["math0"] == credited(batch(100), apart)["math0"]
    assert credited(batch(1), mixed)["math0"] != credited(batch(100), mixed)["math0"]


# KL in the reward


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_distance_to_the_reference_is_taken_off_the_reward(estimator: Any) -> None:
    """Observation log-probs are never read."""
    groups = [
        group("g", trajectory("a", "g", 1.0, [Step(), Step()]), trajectory("b", "g", 0.0, [Step()]))
    ]

    def found(noise: float) -> list[float]:
        made = []
        for row in rows(groups):
            # One nat above the reference on the last target of the first, none elsewhere.
            reference = np.where(row.target, row.behaviour, noise).astype(np.float32)
            if row.trajectory == "a":
                reference[-1] -= 1.0
            made.append(replace(row, reference=reference))
        settings = Advantage(estimator=estimator, std="none")
        done, facts = assigned(made, groups, settings, Credit(), kl=0.25)
        assert facts["kl_in_reward"] == pytest.approx(1 / 6)
        return [value for row in done for value in row.advantage[row.target].tolist()]

    # As if the reward had been 0.75.
    (first, second) = groups[0].trajectories
    plain = credited(
        [group("g", replace(first, reward=0.75), second)],
        Advantage(estimator=estimator, std="none"),
    )
    assert found(-1.0) == pytest.approx([*plain["a"], *plain["b"]])
    assert found(-99.0) == found(-1.0)


def test_the_penalty_of_a_token_is_not_paid_by_later_ones() -> None:
    groups = [group("g", trajectory("a", "g", 1.0, [Step()]), trajectory("b", "g", 1.0, [Step()]))]
    made = [replace(row, reference=row.behaviour.copy()) for row in rows(groups)]
    made[0].reference[2] -= 1.0
    done, _ = assigned(made, groups, Advantage(estimator="reinforce_pp"), Credit(), kl=0.25)
    first, second, *others = [v for row in done for v in row.advantage[row.target].tolist()]
    assert first < 0 < second
    assert others == [second, second]


# a teacher


@pytest.mark.parametrize("reward", [False, True])
def test_a_teacher_pushes_each_token_towards_itself(reward: bool) -> None:
    """Alone or added to the reward's advantages. The data source's factor counts for both, and
    observations are never read."""
    groups = [
        group(
            "g", *(trajectory(n, "g", float(n == "a"), [Step(), Step()], source="s") for n in "ab")
        )
    ]
    settings = Advantage(weights={"s": 3.0})
    plain = credited(groups, settings)

    def found(noise: float) -> dict[str, list[float]]:
        made = []
        for row in rows(groups):
            teacher = np.where(row.target, row.behaviour, noise).astype(np.float32)
            teacher[row.target] += [0.5, -1.0, 0.0, 2.0]
            made.append(replace(row, teacher=teacher))
        distill = Distill(coefficient=0.5, reward=reward)
        done, facts = assigned(made, groups, settings, Credit(), distill=distill)
        assert facts["kl_teacher"] == pytest.approx(-0.375)
        assert not any(row.silent for row in done)
        return {row.trajectory: row.advantage[row.target].tolist() for row in done}

    for name, values in found(-1.0).items():
        base = np.array(plain[name]) if reward else np.zeros(4)
        assert values == pytest.approx(base + 3 * 0.5 * np.array([0.5, -1.0, 0.0, 2.0]))
    assert found(-99.0) == found(-1.0)


# metrics


def test_the_metrics_say_where_advantages_come_from() -> None:
    _, facts = assigned(rows([pair()]), [pair()], EXACT, Credit(turns="anchor"))
    # 8 tokens of size 1 from the trajectory, 4 more from the turns; 2 of 4 turns met another.
    assert facts == pytest.approx(
        {
            "advantage_mean": 0.0,
            "advantage_std": math.sqrt(2.5),
            "advantage_max": 2.0,
            "advantage_zero_fraction": 0.0,
            "turn_credit_share": 4 / 12,
            "turns_compared_fraction": 0.5,
        }
    )
