"""Why a step can teach nothing, in one sentence. Pure.

A step is worthless if no sequence has an advantage: all trajectories are masked, no token carries
loss, or no group has a signal. A KL term alone teaches nothing about the task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from learner.training.batch import Row
from toolwright.credit.signal import varies
from toolwright.types import Group, Trajectory

LONGEST_DETAIL = 200


def why_worthless(groups: Sequence[Group], rows: Sequence[Row]) -> str | None:
    """The reason with its count; None if a row has an advantage."""
    if any(row.has_signal for row in rows):
        return None
    if not groups:
        return "no trajectory has a reward that is a finite number"
    members = [t for group in groups for t in group.trajectories]
    masked = [t for t in members if t.masked]
    if len(masked) == len(members):
        return f"{len(masked)} of {len(members)} trajectories masked: {_reasons(masked)}"
    if not rows:
        empty = [t for t in members if not t.masked]
        also = f"; {len(masked)} masked: {_reasons(masked)}" if masked else ""
        return (
            f"{len(empty)} of {len(members)} trajectories have no token that carries loss: "
            f"{_reasons(empty)}{also}"
        )
    if all(len(group.trajectories) == 1 for group in groups):
        return f"{len(groups)} of {len(groups)} groups have one member: nothing to compare it with"
    if any(varies(t.reward for t in group.trajectories) for group in groups):
        return (
            f"{len(groups)} of {len(groups)} groups without a signal: what differs in their "
            "rewards belongs to members outside of the baseline, or to tasks of weight 0"
        )
    rewards = Counter(f"{t.reward:g}" for t in members if not t.masked)
    reward, count = rewards.most_common(1)[0]
    return (
        f"{len(groups)} of {len(groups)} groups without a signal, all rewards of a group are equal "
        f"({count} of {sum(rewards.values())} are {reward})"
    )


def _reasons(trajectories: Sequence[Trajectory]) -> str:
    """The commonest stop reasons with their counts, and an error message of the first."""
    counts = Counter(t.stop_reason.name.lower() for t in trajectories)
    named = ", ".join(f"{name} {count}" for name, count in counts.most_common(3))
    commonest = counts.most_common(1)[0][0]
    for trajectory in trajectories:
        if trajectory.stop_reason.name.lower() == commonest:
            said = [event.data["error"] for event in trajectory.events if "error" in event.data]
            if said:
                return f"{named} ({' '.join(str(said[-1]).split())[:LONGEST_DETAIL]})"
    return named
