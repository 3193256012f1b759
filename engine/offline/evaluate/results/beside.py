"""Our sets beside a paper's table, for `--against`; the tables are `engine.offline.reference`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.errors import StartupError
from engine.offline.reference import Comparison, ReferenceFault, against, find, read_results
from engine.offline.reference.fragment import html
from engine.offline.reference.names import assignments
from engine.offline.reference.showing import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """tables: such as "se_search:T1". said: the table's set of a set of ours, where its name does
    not tell."""

    tables: Sequence[str] = ()
    said: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: Sequence[str], pairs: Sequence[str]) -> Beside:
        """pairs: "SUITE=SET" each. StartupError for a table that there is not: before the first
        question, and not after the last."""
        try:
            for name in tables:
                find(name)
            return cls(tables=tuple(tables), said=assignments(pairs))
        except ReferenceFault as fault:
            raise StartupError(f"--against: {fault}") from fault

    def lines(self, found: Mapping[str, Any]) -> list[str]:
        """For a terminal. Where the sets are none of a table's, a sentence that says so: what was
        measured is worth as much."""
        told: list[str] = []
        for name in self.tables:
            try:
                told += ["", *shown(self._comparison(name, found)).splitlines()]
            except ReferenceFault as fault:
                told += ["", f"not beside {name}: {fault}"]
        return told

    def sections(self, found: Mapping[str, Any]) -> list[str]:
        """The same as HTML, without the tables that the sets are none of."""
        sections = []
        for name in self.tables:
            try:
                sections.append(html(self._comparison(name, found)))
            except ReferenceFault:
                continue
        return sections

    def _comparison(self, name: str, found: Mapping[str, Any]) -> Comparison:
        scored = [one for one in found["sets"] if one["score"] is not None]
        if not scored:
            raise ReferenceFault("no set has a score yet")
        return against(name, read_results(scored), self.said)
