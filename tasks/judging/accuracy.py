"""The score of an evaluation: accuracy, with exact match and F1 beside it.

It does not depend on the training reward, so two recipes that train differently are compared by the
same numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from tasks.errors import JudgeDown
from tasks.judging import words
from tasks.judging.opinion import OpinionJudge
from toolwright.types import Task

Right = Callable[[str | None, Task], bool]
"""Whether an answer is one of the task's."""


class Accuracy:
    """right: the rule that decides without a model; it may block. opinion: the options of
    tasks.judging.opinion.OpinionJudge, which decides in place of the rule; empty for none."""

    def __init__(self, right: Right, opinion: Mapping[str, Any] | None = None) -> None:
        """Raises ValueError for a judge whose key is missing or whose options are wrong, and
        TypeError for a judge without endpoint or model."""
        self._right = right
        self._opinion = dict(opinion or {})
        if self._opinion:
            try:
                OpinionJudge(**self._opinion)
            except JudgeDown as error:
                raise ValueError(f"judge: {error}") from error

    async def parts(self, task: Task, answer: str | None) -> dict[str, float]:
        """`answer` (0 or 1), `em`, `f1`, and `unparsable` if a model judges.

        answer: None if the trajectory has none. Raises JudgeDown if the model cannot be reached.
        """
        said, golds = answer or "", task.answers
        found = {
            "answer": 0.0,
            "em": float(answer is not None and words.exact_match(said, golds)),
            "f1": words.f1(said, golds),
        }
        if not self._opinion:
            right = await asyncio.to_thread(self._right, answer, task)
            return found | {"answer": float(right)}
        async with OpinionJudge(**self._opinion) as judge:
            opinion = await judge.opinion(question_of(task), golds, answer)
        return found | {"answer": float(opinion.score), "unparsable": float(not opinion.parsed)}


def question_of(task: Task) -> str:
    """The text of the user's last message, or the raw prompt."""
    for message in reversed(task.messages):
        if message.get("role") == "user":
            return _text(message.get("content"))
    return task.prompt


def _text(content: object) -> str:
    if not isinstance(content, list | tuple):
        return str(content or "")
    texts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))
