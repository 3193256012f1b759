"""Turns compared with turns: what the recipe's [learner.credit] makes of their rewards."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from learner.config.objective import Credit
from learner.credit.earned import Member
from toolwright.credit.turns import return_to_go, step_advantage, step_groups


def turn_advantages(
    members: Sequence[Member], credit: Credit, *, eps: float
) -> tuple[list[list[float]], int]:
    """(advantages by member and turn, turns that were compared with others).

    Empty where turns earn nothing. eps: is added to a deviation.
    """
    if credit.turns == "none":
        return [[] for _ in members], 0
    returns = [_return(member, credit) for member in members]
    if credit.turns == "alone":
        return returns, 0
    inside = [member.in_baseline for member in members]
    labels = [
        _labels(member, len(own), credit) for member, own in zip(members, returns, strict=True)
    ]
    groups = step_groups(labels)
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


def _return(member: Member, credit: Credit) -> list[float]:
    rewards = member.turn_rewards
    if credit.outcome_in_return and rewards:
        rewards[-1] += member.trajectory.reward
    return return_to_go(rewards, credit.discount)


def _labels(member: Member, turns: int, credit: Credit) -> list[list[Hashable]]:
    """Of every turn what it is compared by."""
    where = member.group if credit.scope == "prompt" else None
    if credit.turns == "group":
        return [[where] for _ in range(turns)]
    if credit.turns == "position":
        return [[(where, turn)] for turn in range(turns)]
    out: list[list[Hashable]] = [
        [
            (where, anchor)
            for anchor in member.trajectory.anchors.get(turn, ())
            if anchor not in credit.ignore
        ]
        for turn in range(turns)
    ]
    if credit.first_turn and out:
        out[0].append((where, None))  # None is the name of no anchor
    return out
