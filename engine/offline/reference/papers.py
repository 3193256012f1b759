"""Tables of results that papers print, from bench/reference/*.json.

A value is the printed one: a share, a percentage, or a plain number, as `unit` says. A cell that
could not be found is absent, never zero; `complete` and `missing` say so. Nothing is computed or
corrected here. `contradictions` names the places where a paper contradicts itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from toolwright.process.packaged import packaged

FOLDER = "bench/reference"
Unit = Literal["share", "percent", "number"]


class ReferenceFault(ValueError):
    """An unknown paper, table, set or suite, or unreadable results. The message names the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperRow:
    """One system. cells: values by set. averages: printed averages by name."""

    system: str
    model: str
    cells: Mapping[str, float]
    averages: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """A column computed from others: the mean of their values, or of the ranks in them."""

    of: Literal["mean", "rank"]
    sets: tuple[str, ...]
    decimals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """One table. sets: number of questions by name of the set; None if it is not published.

    decimals: printed decimals of a cell. source: origin of the cells. missing: parts not found.
    """

    id: str
    title: str
    metric: str
    unit: Unit
    lower_is_better: bool
    decimals: int
    source: str
    complete: bool
    missing: str
    sets: Mapping[str, int | None]
    averages: Mapping[str, Average]
    rows: tuple[PaperRow, ...]
    notes: str

    @property
    def scale(self) -> float:
        """Printed value of a share of 1."""
        return 100.0 if self.unit == "percent" else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """A place where a paper contradicts itself. row: (system, model) of a printed average that is
    not that of its row. average: its column."""

    where: str
    what: str
    row: tuple[str, str] | None = None
    average: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """One file."""

    name: str
    title: str
    source: str
    complete: bool
    missing: str
    contradictions: tuple[Contradiction, ...]
    tables: Mapping[str, PaperTable]


def papers() -> tuple[str, ...]:
    """Names of the papers, in order."""
    return tuple(sorted(file.stem for file in packaged(FOLDER).glob("*.json")))


def paper(name: str) -> Paper:
    """A paper by its name. Case, `-` and `_` do not matter. Raises ReferenceFault."""
    wanted = _plain(name)
    known = papers()
    found = next((one for one in known if _plain(one) == wanted), None)
    if found is None:
        raise ReferenceFault(f"no paper {name!r}: there are {', '.join(known)}")
    return read_paper(packaged(FOLDER) / f"{found}.json")


def find(name: str) -> tuple[Paper, PaperTable]:
    """The paper and table of a name such as "se_search:T1". Raises ReferenceFault, which lists the
    known ones."""
    which, _, table = name.partition(":")
    found = paper(which)
    for one in found.tables.values():
        if _plain(one.id) == _plain(table):
            return found, one
    there = ", ".join(f"{found.name}:{one}" for one in found.tables)
    raise ReferenceFault(f"{found.name} has no table {table!r}: there are {there}")


def read_paper(file: Path) -> Paper:
    """Reads a file of bench/reference. Raises KeyError, TypeError or ValueError for other files."""
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    tables = [_table(one) for one in data["tables"]]
    return Paper(
        name=data["paper"],
        title=data["title"],
        source=data["source"],
        complete=data["complete"],
        missing=data.get("missing", ""),
        contradictions=tuple(_contradiction(one) for one in data["contradictions"]),
        tables={table.id: table for table in tables},
    )


def _table(data: Mapping[str, Any]) -> PaperTable:
    return PaperTable(
        id=data["id"],
        title=data["title"],
        metric=data["metric"],
        unit=data["unit"],
        lower_is_better=data.get("better", "higher") == "lower",
        decimals=data["decimals"],
        source=data["source"],
        complete=data["complete"],
        missing=data.get("missing", ""),
        sets=dict(data["sets"]),
        averages={
            name: Average(of=one["of"], sets=tuple(one["sets"]), decimals=one["decimals"])
            for name, one in data["averages"].items()
        },
        rows=tuple(
            PaperRow(
                system=row["system"],
                model=row["model"],
                cells={name: float(value) for name, value in row["cells"].items()},
                averages={name: float(value) for name, value in row["averages"].items()},
            )
            for row in data["rows"]
        ),
        notes=data["notes"],
    )


def _contradiction(data: Mapping[str, Any]) -> Contradiction:
    row = data.get("row")
    return Contradiction(
        where=data["where"],
        what=data["what"],
        row=(row[0], row[1]) if row else None,
        average=data.get("average", ""),
    )


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "").replace("_", "")
