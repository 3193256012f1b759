"""Advantages of turns, by the recipe's [learner.credit]."""

from __future__ import annotations

from collections.abc import Sequence

from learner.config.objective import Credit
from learner.credit.members import Member
from toolwright.credit.turns import (
    joined_advantage,
    step_advantage,
    step_groups,
    turn_labels,
    turn_returns,
)


def turn_advantages(
    members: Sequence[Member], credit: Credit, *, eps: float
) -> tuple[list[list[float]], int]:
    """(advantages by member and turn, number of turns that were compared with others).

    Empty lists if turns have no credit. eps: added to a deviation.
    """
    if credit.turns == "none":
        return [[] for _ in members], 0
    returns = [
        turn_returns(
            member.turn_rewards,
            member.trajectory.reward,
            outcome_in_return=credit.outcome_in_return,
            discount=credit.discount,
        )
        for member in members
    ]
    if credit.turns == "alone":
        return returns, 0
    by = "anchor" if credit.turns == "released" else credit.turns
    over_batch = credit.scope == "batch" and credit.turns != "released"
    inside = [member.in_baseline for member in members]
    labels = [
        turn_labels(
            len(own),
            member.trajectory.anchors,
            by=by,
            where=None if over_batch else member.group,
            ignore=credit.ignore,
            first_turn=credit.first_turn,
        )
        for member, own in zip(members, returns, strict=True)
    ]
    groups = step_groups(labels)
    if credit.turns == "released":
        values = joined_advantage(
            [member.turn_rewards for member in members],
            labels,
            discount=credit.discount,
            padded_turns=credit.padded_turns,
            in_baseline=inside,
        )
        joined = [[value] * len(own) for value, own in zip(values, returns, strict=True)]
        return joined, sum(len(own) for own, value in zip(returns, values, strict=True) if value)
    _, steps = step_advantage(
        returns,
        groups,
        std=credit.std,
        eps=eps,
        singleton=credit.singleton,
        several=credit.several,
        in_baseline=inside,
    )
    compared = {
        turn for own in groups.values() if sum(inside[i] for i, _ in own) > 1 for turn in own
    }
    return steps, len(compared)
