"""Unusable rows of a task source: each is dropped and counted, and too many end the run.

Pure: the caller logs a bad row and ends the run.
"""

from __future__ import annotations

from collections import Counter

from engine.errors import EngineError


class BadRow(EngineError):
    """A position of a source without a usable task; other positions are unaffected."""

    def __init__(
        self, *, position: int, task_id: str, kind: str, reason: str, where: str = ""
    ) -> None:
        """where: file and line, or file and row; empty for a function. kind: one word for
        counts."""
        task_id, reason, where = map(_writable, (task_id, reason, where))
        super().__init__(f"{where or f'task {task_id}'}: {reason}")
        self.position = position
        self.task_id = task_id
        self.kind = kind
        self.reason = reason
        self.where = where

    @property
    def fields(self) -> dict[str, object]:
        """Fields of a log line."""
        return {
            "position": self.position,
            "task": self.task_id,
            "where": self.where,
            "kind": self.kind,
            "reason": self.reason,
        }


def _writable(text: str) -> str:
    """The text with half surrogate pairs as escapes: files of lines cannot hold them."""
    return text.encode(errors="backslashreplace").decode()


class BadRows:
    """Counts the dropped rows of a run. A row that comes again in a later epoch counts once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: set[str] = set()
        self._kinds: Counter[str] = Counter()
        self._last: BadRow | None = None

    @property
    def count(self) -> int:
        return len(self._seen)

    @property
    def exceeded(self) -> bool:
        """The run must end, with `sentence`."""
        return self.count > self._most

    def add(self, row: BadRow) -> bool:
        """Whether the row is new and must be logged. Rows beyond the bound are not counted."""
        name = row.where or row.task_id
        if self.exceeded or name in self._seen:
            return False
        self._seen.add(name)
        self._kinds[row.kind] += 1
        self._last = row
        return True

    def sentence(self) -> str:
        """Why the run ends."""
        return (
            f"{self.count} rows of the task source cannot be used, more than engine.max_bad_rows = "
            f"{self._most} ({self._by_kind()}); the last is {self._last}. Correct them, or raise "
            "the limit"
        )

    def summary(self) -> str:
        """One line for the end of a run; "" if no row was dropped."""
        if not self.count:
            return ""
        rows = "row was" if self.count == 1 else "rows were"
        return f"{self.count} {rows} dropped: {self._by_kind()}; the last is {self._last}"

    def _by_kind(self) -> str:
        return ", ".join(f"{number} {kind}" for kind, number in self._kinds.most_common())
