"""The score of one trajectory, by a reward function or a group hook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolwright.reward_figures import MEASURED, RATES, SHARES
from toolwright.types import Event, RewardPart, Trajectory

REWARD_FAILED = "reward_failed"
HOOK_FAILED = "group_hook_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """All fields are optional; a field that is left out changes nothing."""

    reward: float | None = None
    """The trajectory's reward. None = the sum of the parts without a turn; from a group hook, that
    sum is added to the reward."""
    parts: Sequence[RewardPart] = ()
    """Named shares. One with a turn is credit for that turn alone and enters no sum."""
    keep: bool | None = None
    """False takes the trajectory out of the loss. True keeps it there whatever its stop; None
    leaves that to the rules of [task]."""
    events: Sequence[Event] = ()
    """Events to append to the trajectory's."""
    anchors: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Canonical tool ids by turn, for credit assignment."""
    outside_baseline: bool = False
    """The reward does not enter its group's mean and deviation."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weights of sequences in the loss, by their ids, 0 or more; see `Sequence.weight`."""

    @classmethod
    def of(
        cls,
        parts: Mapping[str, float],
        *,
        reward: float | None = None,
        measured: Mapping[str, Any] | None = None,
        rates: Mapping[str, Sequence[float]] | None = None,
        shares: Mapping[str, Sequence[float]] | None = None,
    ) -> Score:
        """Parts by name. measured: figures for the logs alone; the learner writes their means.
        rates, shares: [numerator, denominator] by name for evaluations; shares are shown in
        percent."""
        given = {MEASURED: measured, RATES: rates, SHARES: shares}
        events = tuple(
            Event(kind=kind, turn=0, data=data) for kind, data in given.items() if data is not None
        )
        named = tuple(RewardPart(name=name, value=value or 0.0) for name, value in parts.items())
        return cls(reward=reward, parts=named, events=events)

    @property
    def total(self) -> float:
        """The reward of a trajectory that has only this score."""
        if self.reward is not None:
            return self.reward
        return sum(part.value for part in self.parts if part.turn is None)

    @property
    def failed(self) -> bool:
        """The function or the hook gave no usable value."""
        return any(event.kind in (REWARD_FAILED, HOOK_FAILED) for event in self.events)


def failure(kind: str, error: str) -> Score:
    """The score of a failed call: reward 0, outside of loss and baseline."""
    event = Event(kind=kind, turn=0, data={"error": error})
    return Score(reward=0.0, keep=False, events=(event,), outside_baseline=True)


def rewarded(trajectory: Trajectory) -> bool:
    """Whether the reward is above 0: for `engine sample --keep engine.api:rewarded`."""
    return trajectory.reward > 0
