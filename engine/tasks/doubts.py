"""What is seldom meant of a file's rows: no answer, the same id twice."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from toolwright.types import Task

ANSWERS = ("answer", "answers", "reward_model", "golden_answers")
OTHER_NAMES = ("expected", "gold", "ground_truth", "label", "solution", "target")
"""Other data sets' names for it."""
CLOSE = 0.7
"""Similarity from which on a column is a slip of the pen."""
MOST_COLUMNS = 200
"""Columns that are looked at: a row may have any number."""


class RowDoubts:
    """Rows are told of in their order."""

    def __init__(self) -> None:
        self._tasks = self._unanswered = self._twins = 0
        self._ids: set[int] = set()
        self._twin = ""
        self._columns: dict[str, None] = {}
        """Other columns of rows without an answer, in their order."""

    def look(self, task: Task) -> None:
        self._tasks += 1
        if not task.answers:
            self._unanswered += 1
            if len(self._columns) < MOST_COLUMNS:
                self._columns.update(dict.fromkeys(task.metadata))
        mark = hash(task.id)  # eight bytes a row, however long its id is
        if mark in self._ids:
            self._twins += 1
            self._twin = self._twin or task.id
        self._ids.add(mark)

    def sentences(self) -> list[str]:
        found = []
        if self._unanswered:
            found.append(
                f'{self._unanswered} of {self._tasks} rows have no answer ("answer", "answers" or '
                '"reward_model"): a reward that compares with it gives them nothing'
                + _hint(self._columns)
            )
        if self._twins:
            found.append(
                f"{self._twins} of {self._tasks} rows have an id that another row has, the first "
                f"is {self._twin[:80]!r}: records cannot tell them apart"
            )
        return found


def _hint(columns: Iterable[str]) -> str:
    """Which other column was meant to be the answer; "" without an idea."""
    for column in columns:
        name = column.strip().lower()
        near = get_close_matches(name, ANSWERS, n=1, cutoff=CLOSE)
        if near or name in OTHER_NAMES:
            meant = near[0] if near else "answer"
            return (
                f"; did you mean {meant!r} for {column[:80]!r}? As a column of another name it is "
                "metadata, which tool services are told"
            )
    return ""
