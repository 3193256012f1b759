"""The score of an answer: exact match, and beside it F1 and whether a right answer stands in it.

The answer is read from the policy's last action. None is worth 0 in all three.
"""

from __future__ import annotations

from engine.api import Options
from tasks.judging import words
from toolwright.types import Trajectory

from .methods import Form, answer_of


class PromptingReward(Options):
    """The reward function."""

    form: Form = "tags"
    """How the method writes its answer."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, dict[str, float]]:
        """(exact match, all three parts)."""
        answer = answer_of(str(trajectory.metadata.get("final_text", "")), self.form)
        golds = trajectory.task.answers
        if answer is None:
            return 0.0, {"em": 0.0, "f1": 0.0, "cem": 0.0}
        em = float(words.exact_match(answer, golds))
        f1, cem = words.f1(answer, golds), float(words.cover_match(answer, golds))
        return em, {"em": em, "f1": f1, "cem": cem}
