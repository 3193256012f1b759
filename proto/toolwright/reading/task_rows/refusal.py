"""Why a row is not used. A refused row is counted and named, and never ends a run by itself."""

from __future__ import annotations


class RowRefused(ValueError):
    """The row cannot be used. kind: one word for counting, such as "no_answer"."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind

    def again(self) -> RowRefused:
        """A new one to raise: an error that is raised twice holds on to the frames of each time."""
        return RowRefused(self.kind, str(self))
