"""What a reward function or a group hook says of one trajectory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from toolwright.types import Event, RewardPart, Trajectory

REWARD_FAILED = "reward_failed"
HOOK_FAILED = "group_hook_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """All fields may be left out; what is left out stays as it is.

    reward: the trajectory's reward. None = the sum of the parts without a turn; where a group hook
    says it, that sum is added to the reward that the trajectory has.
    parts: named shares. One with a turn is credit for that turn alone and enters no sum.
    keep: False takes the trajectory's tokens out of the loss; True keeps them there whatever the
    rules of [task] say of its stop; None leaves that to the rules.
    events: are appended to the trajectory's.
    anchors: what a turn stands for when credit is assigned, canonical tool ids by turn.
    outside_baseline: True = the reward does not enter its group's mean and deviation.
    """

    reward: float | None = None
    parts: Sequence[RewardPart] = ()
    keep: bool | None = None
    events: Sequence[Event] = ()
    anchors: Mapping[int, Sequence[str]] = field(default_factory=dict)
    outside_baseline: bool = False

    @property
    def total(self) -> float:
        """The reward that this score gives to a trajectory that had none."""
        if self.reward is not None:
            return self.reward
        return sum(part.value for part in self.parts if part.turn is None)

    @property
    def failed(self) -> bool:
        """The function or the hook did not say anything that can be used."""
        return any(event.kind in (REWARD_FAILED, HOOK_FAILED) for event in self.events)


def failure(kind: str, words: str) -> Score:
    """Stands for a score that could not be had: no reward, no loss, no part in the baseline."""
    event = Event(kind=kind, turn=0, data={"error": words})
    return Score(reward=0.0, keep=False, events=(event,), outside_baseline=True)


def rewarded(trajectory: Trajectory) -> bool:
    """Whether the reward is above 0: for `engine sample --keep engine.api:rewarded`."""
    return trajectory.reward > 0
