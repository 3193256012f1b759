"""An action of many chunks, and what a record holds of it."""

from __future__ import annotations

from toolwright.types import Author, Trajectory

LONG = "<answer> " + "2 and " * 20 + "</answer><|im_end|>"


def actions(trajectory: Trajectory) -> list[int]:
    """The policy's tokens."""
    return [
        token
        for segment in trajectory.sequences[0].segments
        if segment.author is Author.MODEL
        for token in segment.token_ids
    ]
