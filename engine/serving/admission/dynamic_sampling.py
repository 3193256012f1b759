"""Dynamic sampling: which complete groups are discarded because they teach nothing.

DAPO (arXiv:2503.14476, section 3.2): a prompt whose rollouts all earned the same has no advantage,
so another prompt is sampled in its place until the batch is full. Pure, except for one count.

Invariants
- A decision depends on the group's records and on the groups stored before it, in order. So a later
  life of the engine, which counts from the journal, decides the same.
- With `max_gen_batches` = n above 0 no batch costs more than n batches of samples. Later groups are
  kept, with or without a signal, and the learner judges the batch.
- Without that bound at most `MOST_EMPTY_ROUNDS` batches in a row are sampled in vain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence

from toolwright.credit.signal import varies
from toolwright.recipe import DynamicSampling
from toolwright.types import Trajectory

MOST_EMPTY_ROUNDS = 20
"""Batches in a row without a single group that varies. Then the task, the reward or the policy is
at fault, and more samples do not fix it."""


def dapo_filter(pairs: Iterable[tuple[Hashable, float]]) -> list[Hashable]:
    """Groups of (group, metric) pairs that are worth training on: those whose metric varies by more
    than rounding, and lone rollouts."""
    values: dict[Hashable, list[float]] = defaultdict(list)
    for group, value in pairs:
        values[group].append(value)
    return [group for group, own in values.items() if len(own) == 1 or varies(own)]


def metric_of(trajectory: Trajectory, name: str) -> float:
    """The final reward, or the sum of the parts of that name; 0 without such a part."""
    if not name:
        return trajectory.reward
    return sum(part.value for part in trajectory.reward_parts if part.name == name)


def has_signal(members: Sequence[Trajectory], metric: str = "") -> bool:
    """Whether a group passes the filter. Only members of the baseline count, since infrastructure's
    failures show no difference. A group without a member that carries loss never passes."""
    if all(member.masked for member in members):
        return False
    inside = [member for member in members if not member.outside_baseline]
    return bool(dapo_filter((member.group_id, metric_of(member, metric)) for member in inside))


class GroupFilter:
    """Decides for each complete group, in the order of storing, whether it is discarded."""

    def __init__(self, settings: DynamicSampling, *, groups_per_step: int) -> None:
        self._metric = settings.metric
        self._batch = groups_per_step
        self._most = (settings.max_gen_batches - 1) * groups_per_step
        self._bounded = settings.max_gen_batches > 0
        self._kept = 0
        self._turned_away = 0
        self._in_vain = 0
        self._seen: Counter[str] = Counter()
        self._parts: set[str] = set()

    def resume(self, *, kept: int, turned_away: int) -> None:
        """Continues from the journal. kept: groups of the batch that is being filled. turned_away:
        groups discarded for it."""
        self._kept, self._turned_away = kept, turned_away

    def turns_away(self, members: Sequence[Trajectory]) -> bool:
        """Whether the group is not offered to the learner. Call it once per group, because it
        counts."""
        spent = self._bounded and self._turned_away >= self._most
        signal = has_signal(members, self._metric)
        if signal or spent:
            self._in_vain = 0
            self._seen.clear()
            self._kept += 1
            if self._kept == self._batch:
                self._kept = self._turned_away = 0
            return False
        self._turned_away += 1
        self._in_vain += 1
        self._seen.update(_said(member, self._metric) for member in members)
        self._parts.update(part.name for member in members for part in member.reward_parts)
        return True

    @property
    def fruitless(self) -> str:
        """Why sampling stops, as a sentence; "" while there is hope. A group in flight that varies
        restores it."""
        if self._bounded or self._in_vain < MOST_EMPTY_ROUNDS * self._batch:
            return ""
        said = ", ".join(f"{words} {count}" for words, count in self._seen.most_common(3))
        name = f"reward part {self._metric!r}" if self._metric else "reward"
        fix = "look at the reward, or choose tasks that the policy solves at times"
        if self._metric and self._metric not in self._parts:
            parts = ", ".join(sorted(self._parts)) or "none"
            fix = f"no rollout has that part, they have: {parts}; correct dynamic_sampling.metric"
        return (
            f"dynamic sampling discarded {self._in_vain} groups in a row ({MOST_EMPTY_ROUNDS} "
            f"batches): the {name} of no group varies ({said} of {self._seen.total()} rollouts); "
            f"{fix}"
        )


def _said(member: Trajectory, metric: str) -> str:
    return "masked" if member.masked else f"{metric_of(member, metric):g}"
