"""The reward function: whether the answer is right, 1 or 0.

What looking is worth depends on the whole group and is the group hook's (curiosity.py). An
evaluation has no group: its reward is accuracy whatever the recipe trains with, and beside it
stands what the policy did. In training that is an event of the kind `measured`, for the logs alone.
"""

from __future__ import annotations

from engine.api import Options, Score
from toolwright.types import Purpose, Trajectory

from .answers import answer_of, options_of, right
from .looks import TOOL, aimed, looks, refused

BOX = "box"
"""Key of a task's metadata: where its detail is, in shares of the picture; for figures alone."""


class VisualReward(Options):
    """The reward function."""

    tool: str = TOOL
    """Name of the image tool."""

    def __call__(self, trajectory: Trajectory) -> Score:
        task = trajectory.task
        answer = float(right(answer_of(trajectory), task.answers, options_of(task)))
        figures = self._figures(trajectory)
        if task.purpose is not Purpose.TRAIN:
            return Score.of({"answer": answer, **figures}, reward=answer)
        looked = {"right_if_looked": answer} if figures["looks"] else {}
        return Score.of({"answer": answer}, measured={"right": answer, **figures, **looked})

    def _figures(self, trajectory: Trajectory) -> dict[str, float]:
        """looked: whether; looks: how often; refused: calls that showed nothing; aimed: whether a
        look holds the detail, left out if its place is unknown."""
        made = looks(trajectory, self.tool)
        found = {
            "looked": float(bool(made)),
            "looks": float(len(made)),
            "refused": float(refused(trajectory, self.tool)),
        }
        held = aimed(made, trajectory.task.metadata.get(BOX))
        return found if held is None else {**found, "aimed": float(held)}
