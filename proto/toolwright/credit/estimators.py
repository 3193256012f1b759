"""Advantage estimators: one entry each.

An estimator that compares the members of one group has its function here. So the learner and the
viewer compute the same numbers. One that compares a whole batch of tokens has its function in
`learner.credit.episode`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from toolwright.credit.advantages import Singleton, Std, group_advantage, opo, rloo
from toolwright.credit.entries import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewards:
    """Rewards of trajectories, each with its group.

    `lengths` counts the tokens that the policy wrote. A trajectory outside of the baseline is
    compared with those inside.
    """

    rewards: Sequence[float]
    groups: Sequence[Hashable]
    lengths: Sequence[int]
    in_baseline: Sequence[bool]


class EstimatorSettings(Protocol):
    """Keys of [learner.advantage] that functions of groups read."""

    @property
    def std(self) -> Std: ...
    @property
    def eps(self) -> float: ...
    @property
    def singleton(self) -> Singleton: ...


def _grpo(given: Rewards, settings: EstimatorSettings) -> list[float]:
    return group_advantage(
        given.rewards,
        given.groups,
        std=settings.std,
        eps=settings.eps,
        singleton=settings.singleton,
        in_baseline=given.in_baseline,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorEntry(Entry):
    """One estimator. `reads` are keys of [learner.advantage]."""

    title: str
    """Name in its paper."""
    settings: str = ""
    """Template of the settings, for the line in force: {deviation}, {discount}."""
    of_groups: Callable[[Rewards, EstimatorSettings], list[float]] | None = None
    """One advantage a trajectory. None if the learner compares the whole batch."""


ESTIMATORS: Mapping[str, EstimatorEntry] = {
    "grpo": EstimatorEntry(
        title="GRPO",
        formula="reward less the group's mean",
        reads=("std", "eps", "singleton"),
        settings=" with {deviation} deviation",
        of_groups=_grpo,
    ),
    "rloo": EstimatorEntry(
        title="RLOO",
        formula="reward less the mean of the others",
        of_groups=lambda given, _: rloo(given.rewards, given.groups, given.in_baseline),
    ),
    "opo": EstimatorEntry(
        title="OPO",
        formula="reward less the group's mean weighted by length",
        of_groups=lambda given, _: opo(
            given.rewards, given.groups, given.lengths, given.in_baseline
        ),
    ),
    "reinforce_pp": EstimatorEntry(
        title="REINFORCE++",
        formula="return of each token, whitened over the batch",
        reads=("discount", "per_data_source"),
        also=("reinforce++", "reinforce_plus_plus"),
        settings=" with discount {discount:g}",
    ),
    "reinforce_pp_baseline": EstimatorEntry(
        title="REINFORCE++ with a baseline",
        formula="reward less the group's mean, whitened over the batch",
        reads=("per_data_source",),
        also=("reinforce_plus_plus_baseline",),
    ),
}

if TYPE_CHECKING:
    EstimatorName = str
else:
    EstimatorName = Literal[tuple(ESTIMATORS)]
"""Type of the key `learner.advantage.estimator`."""
