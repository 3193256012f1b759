"""Question and data source of each row of a file, small enough for millions of rows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from toolwright.types import Task


class RowIndex:
    """Rows are added in order; a row that is not a task has a place, too."""

    def __init__(self) -> None:
        self._questions = array("q")
        self._codes = array("L")
        self._names: dict[str | None, int] = {None: 0}

    def add(self, task: Task | None) -> None:
        """task: None for a row that is not a task."""
        self._questions.append(question_mark(task) if task else 0)
        name = task.data_source if task else None
        self._codes.append(self._names.setdefault(name, len(self._names)))

    def questions(self, rows: Iterable[int]) -> list[int]:
        """A hash of each question, valid in this process. rows: numbers, from 0."""
        return [self._questions[row] for row in rows if self._codes[row]]

    def rows_of(self, name: str) -> Sequence[int]:
        """Numbers of the rows of a data source, ascending."""
        code = self._names.get(name)
        return array("L", (row for row, own in enumerate(self._codes) if own == code))

    def sources(self, rows: Iterable[int] | None = None) -> list[str]:
        """Data sources of the rows (of all rows if None), in the order of the file."""
        codes = set(self._codes if rows is None else (self._codes[row] for row in rows))
        return [name for name, code in self._names.items() if name is not None and code in codes]


def question_mark(task: Task) -> int:
    """A 64-bit hash of the question, without spaces and case."""
    text = task.prompt or str([message.get("content") for message in task.messages])
    return hash("".join(text.split()).casefold())
