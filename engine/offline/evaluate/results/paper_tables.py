"""Comparison with tables of papers, for `--against`; `engine.offline.reference` has the tables.

A table of rates, such as MTR's share of malformed calls, is compared with the rates of all sets
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.errors import StartupError
from engine.offline.reference import Comparison, ReferenceFault, against, find, read_results
from engine.offline.reference.fragment import blocks
from engine.offline.reference.names import assignments, plain
from engine.offline.reference.showing import shown
from toolwright.page.document import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTables:
    """The tables of papers that results are compared with."""

    tables: Sequence[str] = ()
    """Names such as "se_search:T1"."""
    set_names: Mapping[str, str] = field(default_factory=dict)
    """Set of the paper by set of the evaluation, where the names differ."""

    @classmethod
    def parse(cls, tables: Sequence[str], pairs: Sequence[str]) -> PaperTables:
        """Reads --against and --as; each pair is "SUITE=SET".

        Raises StartupError for an unknown table, so before the first question and not after the
        last.
        """
        try:
            for name in tables:
                find(name)
            return cls(tables=tuple(tables), set_names=assignments(pairs))
        except ReferenceFault as fault:
            raise StartupError(f"--against: {fault}") from fault

    def lines(self, found: Mapping[str, Any]) -> list[str]:
        """Lines for a terminal. A table without any of the sets gives one sentence and no error."""
        lines: list[str] = []
        for name in self.tables:
            try:
                lines += ["", *shown(self._comparison(name, found)).splitlines()]
            except ReferenceFault as fault:
                lines += ["", f"not beside {name}: {fault}"]
        return lines

    def sections(self, found: Mapping[str, Any]) -> list[Block | None]:
        """Blocks of each table that has one of the sets."""
        sections: list[Block | None] = []
        for name in self.tables:
            try:
                sections += blocks(self._comparison(name, found))
            except ReferenceFault:
                continue
        return sections

    def _comparison(self, name: str, found: Mapping[str, Any]) -> Comparison:
        scored = [one for one in found["sets"] if one["score"] is not None]
        if not scored:
            raise ReferenceFault("no set has a score yet")
        scored += self._rates(name, found)
        return against(name, read_results(scored), self.set_names)

    def _rates(self, name: str, found: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The rates that are a column of the table, in the form of a set."""
        taken = {one["name"] for one in found["sets"]}
        named = {plain(self.set_names.get(rate, rate)): rate for rate in found["total"]["rates"]}
        columns = [named[plain(column)] for column in find(name)[1].sets if plain(column) in named]
        return [
            {"name": rate, "score": one["rate"], "n": one["of"], **one}
            for rate in columns
            if rate not in taken
            for one in (found["total"]["rates"][rate],)
        ]
