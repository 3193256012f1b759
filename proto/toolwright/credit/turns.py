"""Credit of turns: rewards of single turns in, one advantage a turn out.

Pure functions. A turn is the pair (trajectory, turn), both counted from 0. Turns with the same
label are compared with each other. The caller chooses the labels: a tool, the state of an
environment, the number of the turn. Labels, not positions, name the groups, so permuting
trajectories permutes the result.

Sources: step groups of identical states are GiGPO's; step groups around tools and the return-to-go
are those of SEARL (sections 3.2 and 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from toolwright.credit.advantages import Std, standardised

TurnsBy = Literal["none", "anchor", "position", "group", "alone", "released"]
"""Turns that a turn's return is compared with: those of the same anchor, of the same number, all of
the group. "alone" takes the return itself; "none" gives turns no credit; "released" is
`joined_advantage`."""
LABELLED: tuple[TurnsBy, ...] = ("anchor", "position", "group")
"""The comparisons, which need `turn_labels`."""
TurnSingleton = Literal["zero", "raw", "batch"]
"""Advantage of a turn without another turn to compare with, see `step_advantage`."""
Several = Literal["mean", "sum"]
"""How a turn combines its values of several labels."""
Scope = Literal["prompt", "batch"]
"""Whether turns are compared within their group or over the batch."""
Branches = Literal["soft", "hard"]
"""Whether tokens that branches share keep each branch's advantage or get the mean."""

PADDED_TURNS = 6
"""Turns of every trajectory in SEARL's released code; a shorter one has zeros after its own."""

Turn = tuple[int, int]
Labels = Sequence[Sequence[Sequence[Hashable]]]
"""Labels of each turn, by trajectory and turn."""


class TurnCredit(Protocol):
    """The keys of [learner.credit] that `turn_terms` reads."""

    @property
    def turns(self) -> TurnsBy: ...
    @property
    def discount(self) -> float: ...
    @property
    def outcome_in_return(self) -> bool: ...
    @property
    def std(self) -> Std: ...
    @property
    def singleton(self) -> TurnSingleton: ...
    @property
    def scope(self) -> Scope: ...
    @property
    def several(self) -> Several: ...
    @property
    def ignore(self) -> Collection[str]: ...
    @property
    def first_turn(self) -> bool: ...
    @property
    def padded_turns(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """The turns of one trajectory."""

    rewards: Sequence[float]
    """[turns] reward of each turn."""
    outcome: float
    """The trajectory's own reward."""
    anchors: Mapping[int, Sequence[str]]
    """Anchors by turn."""
    in_baseline: bool
    """Whether others are compared with them."""
    group: Hashable
    """Its group. Turns are compared within it, if the scope is not the batch."""


def turn_terms(
    trajectories: Sequence[Turns], credit: TurnCredit, *, eps: float
) -> tuple[list[list[float]], int]:
    """(what each turn adds to its tokens' advantages, by trajectory and turn; number of turns that
    were compared with others).

    The recipe's weight is not in it. Empty lists if turns have no credit. eps: added to a
    deviation.
    """
    if credit.turns == "none":
        return [[] for _ in trajectories], 0
    returns = [
        turn_returns(
            own.rewards,
            own.outcome,
            outcome_in_return=credit.outcome_in_return,
            discount=credit.discount,
        )
        for own in trajectories
    ]
    if credit.turns == "alone":
        return returns, 0
    released = credit.turns == "released"
    over_batch = credit.scope == "batch" and not released
    inside = [own.in_baseline for own in trajectories]
    labels = [
        turn_labels(
            len(own.rewards),
            own.anchors,
            by="anchor" if released else credit.turns,
            where=None if over_batch else own.group,
            ignore=credit.ignore,
            first_turn=credit.first_turn,
        )
        for own in trajectories
    ]
    if released:
        values = joined_advantage(
            [own.rewards for own in trajectories],
            labels,
            discount=credit.discount,
            padded_turns=credit.padded_turns,
            in_baseline=inside,
        )
        terms = [[value] * len(own) for value, own in zip(values, returns, strict=True)]
        return terms, sum(len(own) for own, value in zip(terms, values, strict=True) if value)
    groups = step_groups(labels)
    _, terms = step_advantage(
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
    return terms, len(compared)


def turn_rewards(turns: int, parts: Iterable[tuple[int | None, float]]) -> list[float]:
    """[turns] sums of the parts of a reward, (turn, value) each, by turn.

    Leaves out parts without a turn, which are the trajectory's, and parts beyond the last turn.
    """
    out = [0.0] * turns
    for turn, value in parts:
        if turn is not None and turn < turns:
            out[turn] += value
    return out


def return_to_go(rewards: Sequence[float | None], gamma: float) -> list[float]:
    """[T] R_t = r_t + gamma R_{t+1} over the turns of one trajectory. None counts as reward 0."""
    out: list[float] = []
    running = 0.0
    for reward in reversed(rewards):
        running = (0.0 if reward is None else reward) + gamma * running
        out.append(running)
    return out[::-1]


def turn_returns(
    rewards: Sequence[float], outcome: float, *, outcome_in_return: bool, discount: float
) -> list[float]:
    """[T] return of each turn of a trajectory.

    outcome_in_return: whether the trajectory's own reward, `outcome`, counts in the last turn's.
    """
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
    """[turns] labels of each turn, within `where`.

    by: "group" gives all turns one label, "position" the number of the turn, "anchor" its anchors
    except those to ignore. first_turn: whether first turns have a label in common as well.
    """
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
    """Turns of each label, in order. A label that a turn has twice counts once."""
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
    singleton: TurnSingleton = "zero",
    several: Several = "mean",
    in_baseline: Sequence[bool] | None = None,
) -> tuple[dict[Hashable, list[float]], list[list[float]]]:
    """(advantages of each group's turns, advantages by trajectory and turn).

    (R - mean) / (std + eps) within each group of turns. A turn in several groups gets the mean or
    the sum of its values there. A turn without a group gets 0.

    returns: return-to-go by trajectory and turn. singleton: a turn without another turn to compare
    with gets 0, its own R ("raw"), or is compared with all turns ("batch"). in_baseline: whether a
    trajectory's turns enter the statistics. A return that is not finite enters no statistics.
    """
    inside = in_baseline if in_baseline is not None else [True] * len(returns)

    def compared(members: Sequence[Turn], fewest: int) -> list[float] | None:
        """Advantages within the members; None if fewer than `fewest` are in the baseline."""
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


def joined_advantage(
    rewards: Sequence[Sequence[float]],
    labels: Labels,
    *,
    discount: float,
    padded_turns: int = PADDED_TURNS,
    in_baseline: Sequence[bool] | None = None,
) -> list[float]:
    """[trajectories] what SEARL's released code (b535d61) adds to every token of a trajectory.

    It compares trajectories in place of turns: those that share a label, directly or through
    others. A trajectory's value is the mean of its returns-to-go over `padded_turns` turns, or over
    its own if they are more. The advantage is the value minus the mean of the joined ones in the
    baseline; 0 if fewer than two are. Nothing is divided by a deviation.

    rewards: by trajectory and turn. labels: of each turn.
    """
    inside = in_baseline if in_baseline is not None else [True] * len(rewards)
    values = []
    for own in rewards:
        size = max(padded_turns, len(own))
        padded = [*own, *[0.0] * (size - len(own))]
        values.append(math.fsum(return_to_go(padded, discount)) / size)
    part = list(range(len(rewards)))
    first: dict[Hashable, int] = {}
    for place, turns in enumerate(labels):
        for label in dict.fromkeys(label for turn in turns for label in turn):
            old, new = part[place], part[first.setdefault(label, place)]
            part = [new if one == old else one for one in part]
    out = [0.0] * len(rewards)
    for joined in set(part):
        members = [place for place, one in enumerate(part) if one == joined]
        counted = [values[i] for i in members if inside[i] and math.isfinite(values[i])]
        if len(counted) > 1:
            mean = math.fsum(counted) / len(counted)
            for i in members:
                out[i] = values[i] - mean
    return out
