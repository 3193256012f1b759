"""The judge of a task whose answers may be words, numbers or expressions.

A recipe names its `judge`: "words" compares numbers as numbers and all else by exact match, "math"
compares numbers as numbers and all else by mathematics, "auto" chooses one for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from tasks.judging import words
from tasks.judging.numbers import number_of, same_number, same_number_or_words
from tasks.judging.symbols import shared_judge
from toolwright.reading.expressions import is_expression
from toolwright.types import Task

Kind = Literal["words", "math", "auto"]


class AnswerJudge:
    """Compares answers with those of a task.

    Every judge of a process shares the processes that compare expressions. Blocks: not for an event
    loop's thread.
    """

    def __init__(self, kind: Kind = "auto") -> None:
        """Raises ValueError for another kind."""
        if kind not in get_args(Kind):
            known = ", ".join(map(repr, get_args(Kind)))
            raise ValueError(f"judge = {kind!r}: write one of {known}")
        self._kind = kind
        self._expressions = None if kind == "words" else shared_judge()

    def right(self, answer: str | None, task: Task) -> bool:
        """Whether an answer is one of the task's. None and a blank answer are wrong."""
        if answer is None or not answer.strip():
            return False
        if self._expressions is not None and self._mathematical(task):
            close = same_number(answer, task.answers)
            return close or self._expressions.right(answer, task.answers)
        return same_number_or_words(answer, task.answers)

    def f1(self, answer: str | None, task: Task) -> float:
        """1 for a right answer; else the best share of words in common with one, in [0, 1). A wrong
        number and a wrong expression share nothing."""
        if self.right(answer, task):
            return 1.0
        if answer is None or self._mathematical(task):
            return 0.0
        worded = [gold for gold in task.answers if not _both_numbers(answer, gold)]
        return words.f1(answer, worded)

    def _mathematical(self, task: Task) -> bool:
        """auto: the row's `task` decides ("math" or another); a row without one is mathematics if
        every right answer is an expression."""
        if self._kind != "auto":
            return self._kind == "math"
        named = task.metadata.get("task")
        if isinstance(named, str) and named:
            return named == "math"
        return _expressions(task.answers)


def _expressions(golds: Sequence[str]) -> bool:
    return bool(golds) and all(map(is_expression, golds))


def _both_numbers(answer: str, gold: str) -> bool:
    return number_of(answer) is not None and number_of(gold) is not None
