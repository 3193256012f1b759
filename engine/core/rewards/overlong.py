"""The penalty for length, which grows over the last tokens before a limit; pure.

Soft overlong punishment of DAPO (arXiv:2503.14476, section 3.4). The length counts tokens of the
policy; with `count = "all"` observations too, but never the prompt.
"""

from __future__ import annotations

from toolwright.recipe import Overlong
from toolwright.types import Author, Trajectory

PART = "overlong"
"""Name of the part of the reward."""


def overlong(length: int, max_length: int, buffer: int, factor: float = 1.0) -> float:
    """0 up to `max_length - buffer` tokens, then linear to -factor at `max_length`, -factor beyond.

    Without a buffer it is -factor above `max_length` and 0 elsewhere.
    """
    over = length - (max_length - buffer)
    if over <= 0:
        return 0.0
    return -factor * min(1.0, over / buffer) if buffer else -factor


def penalty(trajectory: Trajectory, settings: Overlong) -> float:
    """The penalty that is added to the trajectory's reward; 0 or below."""
    length = (
        trajectory.response_tokens
        if settings.count == "policy"
        else sum(
            len(segment.token_ids)
            for segment in trajectory.segments
            if segment.author is not Author.PROMPT
        )
    )
    return overlong(length, settings.max, settings.buffer, settings.factor)
