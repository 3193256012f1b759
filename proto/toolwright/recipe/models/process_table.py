"""The base of a process's own table, which can describe its effect."""

from __future__ import annotations

from toolwright.recipe.models.shared_tables import Shared
from toolwright.recipe.models.table import Table


class ProcessTable(Table):
    """A registered table of a process: [engine], [learner] and the like."""

    def in_force(self, shared: Shared) -> str:
        """The effect of this table and the shared ones, in a few words, or ""."""
        return ""

    def conflict(self, shared: Shared) -> str:
        """Why this table does not work with the shared ones, one sentence with the fix, or ""."""
        return ""

    def doubts(self, shared: Shared) -> list[str]:
        """One sentence for each setting that is probably a mistake, with the fix."""
        return []
