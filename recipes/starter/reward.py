"""The reward: 1 for the right answer at the end, else 0."""

from __future__ import annotations

import re

from toolwright.types import Trajectory

LAST_TURN = re.compile(r"\s*<answer>([^<]*)</answer>\s*<\|im_end\|>")


def score(trajectory: Trajectory) -> dict[str, float]:
    """Named parts; their sum is the reward, and each has a curve of its own.

    The whole last turn has to fit. A reward that only looked for the answer somewhere would pay a
    policy that goes on and on.
    """
    last = LAST_TURN.fullmatch(str(trajectory.metadata["final_text"]))
    right = last is not None and last[1].strip() in trajectory.task.answers
    return {"correct": float(right)}
