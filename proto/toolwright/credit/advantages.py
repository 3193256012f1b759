"""Group estimators: rewards in, one advantage a trajectory out.

Pure functions on sequences of Python numbers. A label names a group, never a position. So permuting
trajectories permutes the result. Empty input gives empty output. A group whose rewards are equal
gives exactly 0, whatever rounding does to its mean. A NaN reward spoils its own group and no other.
Does not know models, batches or losses.

`in_baseline` marks the members of the baseline, all by default. A member outside of the baseline is
compared with those inside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Literal

from toolwright.credit.signal import varies

Std = Literal["population", "sample", "none"]
"""Standard deviation that a difference is divided by."""
Singleton = Literal["zero", "raw"]
"""Advantage of a lone rollout: 0, or its reward."""


def group_advantage(
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    *,
    std: Std = "sample",
    eps: float = 1e-6,
    singleton: Singleton = "zero",
    in_baseline: Sequence[bool] | None = None,
) -> list[float]:
    """(R - mean) / (std + eps) within each group (GRPO; with std "none" Dr.GRPO).

    A lone rollout gets 0, or with "raw" R / (1 + eps). If fewer than two members are in the
    baseline, every member of the group counts as a lone rollout.
    """

    def advantage(own: list[float], inside: list[bool]) -> list[float]:
        if sum(inside) < 2:
            return [value / (1.0 + eps) if singleton == "raw" else 0.0 for value in own]
        return standardised(own, inside, std=std, eps=eps)

    return _by_group(rewards, groups, in_baseline, advantage)


def standardised(
    values: Sequence[float], inside: Sequence[bool], *, std: Std, eps: float
) -> list[float]:
    """(v - mean) / (std + eps), with statistics over the values inside, at least one."""
    baseline = _chosen(values, inside)
    centred = _differences(values, baseline, sum(baseline) / len(baseline))
    if std == "none":
        return centred
    if not varies(baseline):  # dividing would turn rounding into a signal
        return [0.0] * len(centred)
    squares = sum(value * value for value in _chosen(centred, inside))
    spread = (squares / max(1, len(baseline) - (std == "sample"))) ** 0.5
    return [value / (spread + eps) for value in centred]


def rloo(
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    in_baseline: Sequence[bool] | None = None,
) -> list[float]:
    """R minus the mean of the other members (RLOO); R without other members."""

    def advantage(own: list[float], inside: list[bool]) -> list[float]:
        baseline = _chosen(own, inside)
        total = sum(baseline)
        out = []
        for value, counted in zip(own, inside, strict=True):
            others = len(baseline) - counted
            mean = (total - value * counted) / others if others else 0.0
            out += _differences([value], baseline if others else [], mean)
        return out

    return _by_group(rewards, groups, in_baseline, advantage)


def opo(
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    lengths: Sequence[int],
    in_baseline: Sequence[bool] | None = None,
) -> list[float]:
    """R minus the length-weighted mean of the group (OPO, on-policy optimal baseline).

    A lone rollout keeps R, and so does a group without tokens.
    """
    inside = in_baseline if in_baseline is not None else [True] * len(rewards)
    out = [float(reward) for reward in rewards]
    for positions in _positions(groups):
        baseline = [p for p in positions if inside[p]]
        weight = sum(lengths[p] for p in baseline)
        if len(baseline) < 2 or not weight:
            continue
        mean = sum(lengths[p] * out[p] for p in baseline) / weight
        values = _differences([out[p] for p in positions], [out[p] for p in baseline], mean)
        for position, value in zip(positions, values, strict=True):
            out[position] = value
    return out


def centred(
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    in_baseline: Sequence[bool] | None = None,
) -> list[float]:
    """R minus the mean of the group; a lone rollout keeps R."""

    def advantage(own: list[float], inside: list[bool]) -> list[float]:
        return own if sum(inside) < 2 else standardised(own, inside, std="none", eps=0.0)

    return _by_group(rewards, groups, in_baseline, advantage)


def _differences(values: Sequence[float], baseline: Sequence[float], mean: float) -> list[float]:
    """v - mean. The mean of a constant baseline is exactly its value."""
    if baseline and not varies(baseline):
        return [v - mean if varies((v, baseline[0])) else 0.0 for v in values]
    return [value - mean for value in values]


def _chosen(values: Sequence[float], inside: Sequence[bool]) -> list[float]:
    return [value for value, counted in zip(values, inside, strict=True) if counted]


def _by_group(
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    in_baseline: Sequence[bool] | None,
    advantage: Callable[[list[float], list[bool]], list[float]],
) -> list[float]:
    """Applies `advantage` to each group's rewards and baseline marks."""
    inside = in_baseline if in_baseline is not None else [True] * len(rewards)
    out = [0.0] * len(rewards)
    for positions in _positions(groups):
        own = [float(rewards[p]) for p in positions]
        values = advantage(own, [inside[p] for p in positions])
        for position, value in zip(positions, values, strict=True):
            out[position] = value
    return out


def _positions(groups: Sequence[Hashable]) -> Iterable[list[int]]:
    """Indices of the members of each group."""
    members: dict[Hashable, list[int]] = defaultdict(list)
    for position, group in enumerate(groups):
        members[group].append(position)
    return members.values()
