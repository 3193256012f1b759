"""The reward: 1 for the right answer at the end, else 0."""

from __future__ import annotations

import re

from toolwright.types import StopReason, Trajectory

LAST_TURN = re.compile(r"\s*<answer>([^<]*)</answer>\s*")


def score(trajectory: Trajectory) -> dict[str, float]:
    """Named parts; their sum is the reward, and each has a curve of its own.

    The whole last turn has to fit, and it must have ended. A reward that only looked for the answer
    somewhere would pay a policy that goes on and on.
    """
    last = LAST_TURN.fullmatch(str(trajectory.metadata["final_text"]))
    ended = trajectory.stop_reason is StopReason.ANSWERED
    right = ended and last is not None and last[1].strip() in trajectory.task.answers
    return {"correct": float(right)}
