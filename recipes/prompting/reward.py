"""The score of an answer: exact match, and beside it F1 and whether a right answer stands in it.

The answer is read from the policy's last action. None is worth 0 in all three.
"""

from __future__ import annotations

from typing import Literal

from tasks.judging import words
from toolwright.types import Trajectory

from .methods import answer_of

FORMS = ("tags", "line", "finish")


class Score:
    """Options: `form`, in which the method writes its answer (methods.answer_of)."""

    def __init__(self, *, form: Literal["tags", "line", "finish"] = "tags") -> None:
        if form not in FORMS:
            raise ValueError(f"form = {form!r}: write one of {', '.join(FORMS)}")
        self._form = form

    def __call__(self, trajectory: Trajectory) -> tuple[float, dict[str, float]]:
        """(exact match, all three parts)."""
        answer = answer_of(str(trajectory.metadata.get("final_text", "")), self._form)
        golds = trajectory.task.answers
        if answer is None:
            return 0.0, {"em": 0.0, "f1": 0.0, "cem": 0.0}
        em = float(words.exact_match(answer, golds))
        f1, cem = words.f1(answer, golds), float(words.cover_match(answer, golds))
        return em, {"em": em, "f1": f1, "cem": cem}
