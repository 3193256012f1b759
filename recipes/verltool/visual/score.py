"""The reward function: whether the answer is right, 1 or 0.

What looking is worth depends on the whole group and is the group hook's (curiosity.py). An
evaluation has no group: its reward is accuracy whatever the recipe trains with, and beside it
stands what the policy did. In training that is an event of the kind `measured`, for the logs alone.
"""

from __future__ import annotations

from engine.api import Score as EngineScore
from toolwright.types import Event, Purpose, RewardPart, Trajectory

from .answers import answer_of, options_of, right
from .looks import TOOL, aimed, looks, refused

BOX = "box"
"""Key of a task's metadata: where its detail is, in shares of the picture; for figures alone."""


class Score:
    """Option: `tool`, the name of the image tool."""

    def __init__(self, *, tool: str = TOOL) -> None:
        self._tool = tool

    def __call__(self, trajectory: Trajectory) -> EngineScore:
        task = trajectory.task
        correct = right(answer_of(trajectory), task.answers, options_of(task))
        answer = RewardPart(name="answer", value=float(correct))
        figures = self._figures(trajectory)
        if task.purpose is Purpose.TRAIN:
            data = {"right": answer.value, **figures}
            if figures["looks"]:
                data["right_if_looked"] = answer.value
            return EngineScore(parts=[answer], events=[Event(kind="measured", turn=0, data=data)])
        parts = [RewardPart(name=name, value=value) for name, value in figures.items()]
        return EngineScore(reward=answer.value, parts=[answer, *parts])

    def _figures(self, trajectory: Trajectory) -> dict[str, float]:
        """looked: whether; looks: how often; refused: calls that showed nothing; aimed: whether a
        look holds the detail, left out where nobody knows where that is."""
        made = looks(trajectory, self._tool)
        found = {
            "looked": float(bool(made)),
            "looks": float(len(made)),
            "refused": float(refused(trajectory, self._tool)),
        }
        held = aimed(made, trajectory.task.metadata.get(BOX))
        return found if held is None else {**found, "aimed": float(held)}
