"""The reward that an outside agent, or its environment, reported. Pure."""

from __future__ import annotations

from engine.core.rewards.score import Score
from toolwright.types import RewardPart, Trajectory

REPORTED = "reported"
"""Key of the report in the metadata: {"reward": number or None, "parts": [fields, ...]}."""


def reported(trajectory: Trajectory) -> Score:
    """The report as a score. A missing report takes the trajectory out of loss and baseline."""
    report = trajectory.metadata.get(REPORTED)
    if report is None:
        return Score(reward=0.0, keep=False, outside_baseline=True)
    parts = [RewardPart(**part) for part in report["parts"]]
    if report["reward"] is None and all(part.turn is not None for part in parts):
        return Score(reward=0.0, parts=parts, keep=False, outside_baseline=True)
    return Score(reward=report["reward"], parts=parts)
