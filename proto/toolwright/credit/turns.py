"""Credit of turns: rewards of single turns in, one advantage a turn out.

Pure functions. A turn is the pair (trajectory, turn), both counted from 0. Turns that carry the
same label are compared with each other; what a label is (a tool, the state of an environment, the
number of the turn) is the caller's business. Labels, not positions, tell the groups: permuting
trajectories permutes the result.

Sources: step groups of identical states are GiGPO's; step groups around tools and the return-to-go
are those of SEARL (sections 3.2 and 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Literal

from toolwright.credit.advantages import Std, standardised

Turn = tuple[int, int]
Labels = Sequence[Sequence[Sequence[Hashable]]]
"""Of each trajectory, of each of its turns: what the turn is compared by."""


def turn_rewards(turns: int, parts: Iterable[tuple[int | None, float]]) -> list[float]:
    """[turns] the parts of a reward, (turn, value) each, added up by turn. Parts of no turn are the
    trajectory's own, and those of a turn beyond `turns` are nobody's: both are left out."""
    out = [0.0] * turns
    for turn, value in parts:
        if turn is not None and turn < turns:
            out[turn] += value
    return out


def return_to_go(rewards: Sequence[float | None], gamma: float) -> list[float]:
    """[T] R_t = r_t + gamma R_{t+1} over the turns of one trajectory. None, a turn without a
    reward, counts as 0."""
    out: list[float] = []
    running = 0.0
    for reward in reversed(rewards):
        running = (0.0 if reward is None else reward) + gamma * running
        out.append(running)
    return out[::-1]


def turn_returns(
    rewards: Sequence[float], outcome: float, *, outcome_in_return: bool, discount: float
) -> list[float]:
    """[T] what each turn of a trajectory led to. outcome_in_return: the trajectory's own reward,
    `outcome`, counts as one of its last turn."""
    own = list(rewards)
    if outcome_in_return and own:
        own[-1] += outcome
    return return_to_go(own, discount)


def turn_labels(
    turns: int,
    anchors: Mapping[int, Sequence[str]],
    *,
    by: str,
    where: Hashable,
    ignore: Collection[str],
    first_turn: bool,
) -> list[list[Hashable]]:
    """[turns] what each is compared by, within `where`: nothing else ("group"), its number
    ("position"), or its anchors ("anchor") but those to ignore; with `first_turn` the first turns
    are compared with each other as well."""
    if by == "group":
        return [[where] for _ in range(turns)]
    if by == "position":
        return [[(where, turn)] for turn in range(turns)]
    out: list[list[Hashable]] = [
        [(where, anchor) for anchor in anchors.get(turn, ()) if anchor not in ignore]
        for turn in range(turns)
    ]
    if first_turn and out:
        out[0].append((where, None))  # None is the name of no anchor
    return out


def step_groups(labels: Labels) -> dict[Hashable, list[Turn]]:
    """The turns under each label, in order. A label that a turn has twice counts once."""
    groups: dict[Hashable, list[Turn]] = {}
    for trajectory, turns in enumerate(labels):
        for turn, own in enumerate(turns):
            for label in dict.fromkeys(own):
                groups.setdefault(label, []).append((trajectory, turn))
    return groups


def step_advantage(
    returns: Sequence[Sequence[float]],
    groups: Mapping[Hashable, Sequence[Turn]],
    *,
    std: Std = "population",
    eps: float = 0.0,
    singleton: Literal["zero", "raw", "batch"] = "zero",
    several: Literal["mean", "sum"] = "mean",
    in_baseline: Sequence[bool] | None = None,
) -> tuple[dict[Hashable, list[float]], list[list[float]]]:
    """(advantages of each group's turns, advantages by trajectory and turn).

    (R - mean) / (std + eps) within each group of turns. A turn in several groups takes the mean or
    the sum of what it gets in them, a turn in none 0.

    returns: return-to-go by trajectory and turn. singleton: a turn with nothing to compare it with
    gets 0, its own R ("raw"), or is compared with all turns ("batch"). in_baseline: by trajectory,
    whose turns the statistics are taken of. A return that is no number enters none.
    """
    inside = in_baseline if in_baseline is not None else [True] * len(returns)

    def compared(members: Sequence[Turn], fewest: int) -> list[float] | None:
        """Their advantages among each other; None where fewer may be compared with."""
        own = [returns[trajectory][turn] for trajectory, turn in members]
        counted = [
            inside[trajectory] and math.isfinite(value)
            for (trajectory, _), value in zip(members, own, strict=True)
        ]
        return standardised(own, counted, std=std, eps=eps) if sum(counted) >= fewest else None

    alone = [list(own) if singleton == "raw" else [0.0] * len(own) for own in returns]
    if singleton == "batch":
        turns = [(i, t) for i, own in enumerate(returns) for t in range(len(own))]
        for (i, t), value in zip(turns, compared(turns, 1) or [], strict=False):
            alone[i][t] = value
    by_group = {
        label: compared(members, 2) or [alone[i][t] for i, t in members]
        for label, members in groups.items()
    }
    sums = [[0.0] * len(own) for own in returns]
    counts = [[0] * len(own) for own in returns]
    for label, members in groups.items():
        for (trajectory, turn), value in zip(members, by_group[label], strict=True):
            sums[trajectory][turn] += value
            counts[trajectory][turn] += 1
    if several == "sum":
        return by_group, sums
    return by_group, [
        [total / max(1, count) for total, count in zip(*own, strict=True)]
        for own in zip(sums, counts, strict=True)
    ]
