"""The base of a process's own table, which can describe itself beside the shared tables."""

from __future__ import annotations

from toolwright.recipe.models.shared_tables import Shared
from toolwright.recipe.models.table import Table


class ProcessTable(Table):
    """A registered table of a process: [engine], [learner] and the like."""

    def in_force(self, shared: Shared) -> str:
        """What the process does by this table and the shared ones, in a few words, or ""."""
        return ""

    def doubts(self, shared: Shared) -> list[str]:
        """Settings that are seldom meant: a sentence each, which names the fix."""
        return []
