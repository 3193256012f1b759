"""Compares a run's results ("ours") with a paper's table; pure.

Every cell of the paper gets our value, the difference and both standard errors. Every row gets its
rank in each set that we have. Ranks are competition ranks: equal values share the best place, and
the next place stays free. Ranks compare printed values, so ours is rounded first.

The paper's standard error is sqrt(p (1 - p) / n), with the printed p and the set's published n. It
is unknown without a published n. It is 0 if all answers are right, or all wrong: five questions
would then prove anything. So a difference uses the error of (successes + 1) / (n + 2) in that case,
Laplace's rule of succession.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.offline.reference.names import matched
from engine.offline.reference.papers import (
    Average,
    Paper,
    PaperRow,
    PaperTable,
    ReferenceFault,
    find,
)

BOUND = 1.96
"""Standard errors beyond which a difference counts; 5 % of equal pairs reach it by chance."""
OURS = "ours"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Our result of a suite. score: a share in [0, 1], or a plain number if that is the table's
    unit. standard_error: in the same unit; None if unknown."""

    name: str
    score: float
    n: int
    standard_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A value in the table's unit, with its standard error. doubt: error for differences, which is
    above 0 if n is known."""

    value: float
    error: float | None = None
    doubt: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One system and one set, or one average. rank: among all rows, ours included; None for an
    average and for an absent value."""

    paper: Measured | None
    ours: Measured | None
    rank: int | None = None

    @property
    def difference(self) -> Measured | None:
        """Ours minus the paper's. Its error is None if either error is unknown."""
        if self.paper is None or self.ours is None:
            return None
        return Measured(
            value=self.ours.value - self.paper.value,
            error=_together(self.paper.doubt, self.ours.doubt),
        )

    @property
    def apart(self) -> bool | None:
        """Whether the difference exceeds BOUND standard errors; None if an error is unknown."""
        difference = self.difference
        if difference is None or difference.error is None:
            return None
        return abs(difference.value) > BOUND * difference.error


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """A row of the paper, or our row (`own`), whose cells have no `paper` side. average_rank: None
    if the row lacks a ranked set."""

    system: str
    model: str
    own: bool
    cells: Mapping[str, Cell]
    averages: Mapping[str, Cell]
    average_rank: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """lines: the paper's rows in its order, then our row if there are results. ranked: sets with
    ranks. not_compared: suites that are not a set of the table."""

    paper: Paper
    table: PaperTable
    lines: tuple[ComparedRow, ...]
    ranked: tuple[str, ...]
    not_compared: tuple[str, ...]


def against(
    name: str, results: Iterable[Result] = (), said: Mapping[str, str] | None = None
) -> Comparison:
    """The comparison of results with a table. name: such as "se_search:T1".

    said: set by suite, for suites whose names differ from the set's. Without results only the
    paper's rows are ranked. Raises ReferenceFault for unknown names, and if no suite is a set of
    the table.
    """
    paper, table = find(name)
    by_suite: dict[str, Result] = {}
    for result in results:
        if by_suite.setdefault(result.name, result) is not result:
            raise ReferenceFault(f"two suites are named {result.name!r}")
    sets, others = matched(by_suite, table, said)
    if by_suite and not sets:
        raise ReferenceFault(
            f"no suite is a set of {name}: suites {', '.join(by_suite)}; sets "
            f"{', '.join(table.sets)}. Say which is which: --as SUITE=SET"
        )
    ours = {sets[suite]: _printed(by_suite[suite], table) for suite in by_suite if suite in sets}
    ranked = tuple(name for name in table.sets if not ours or name in ours)
    rows = list(table.rows)
    if ours:
        values = {name: round(one.value, table.decimals) for name, one in ours.items()}
        rows.append(PaperRow(system=OURS, model="", cells=values, averages={}))
    ranks = {name: _ranks_in(name, rows, table) for name in ranked}
    lines = [
        _line(row, place, table, ours, ranks, own=place >= len(table.rows))
        for place, row in enumerate(rows)
    ]
    return Comparison(
        paper=paper, table=table, lines=tuple(lines), ranked=ranked, not_compared=others
    )


def read_results(suites: Iterable[Mapping[str, Any]]) -> list[Result]:
    """Suites of a results.json: {name, score, n, standard_error}. Raises ReferenceFault for other
    data."""
    found: list[Result] = []
    for suite in suites:
        try:
            error = suite.get("standard_error")
            result = Result(
                name=str(suite["name"]),
                score=float(suite["score"]),
                n=int(suite["n"]),
                standard_error=None if error is None else float(error),
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as fault:
            raise ReferenceFault(
                f"a suite is no {{name, score, n, standard_error}}: {fault!r}"
            ) from fault
        if not math.isfinite(result.score) or not math.isfinite(result.standard_error or 0.0):
            raise ReferenceFault(f"suite {result.name!r}: its score is no finite number")
        found.append(result)
    return found


def competition_ranks(values: Sequence[float], *, lower_is_better: bool = False) -> list[int]:
    """1 for the best. Equal values share the best place, and the next places stay free."""
    ordered = sorted(values, reverse=not lower_is_better)
    first: dict[float, int] = {}
    for place, value in enumerate(ordered, 1):
        first.setdefault(value, place)
    return [first[value] for value in values]


def standard_error(value: float, n: int | None, table: PaperTable) -> float | None:
    """Standard error of a printed share in the table's unit: sqrt(p (1 - p) / n). None if the value
    is not a share, or n is unknown."""
    share = value / table.scale
    if table.unit == "number" or not n or not 0.0 <= share <= 1.0:
        return None
    return table.scale * math.sqrt(share * (1.0 - share) / n)


def _printed(result: Result, table: PaperTable) -> Measured:
    """A result in the table's unit. Without an error of its own, its n gives the error."""
    if table.unit != "number" and not 0.0 <= result.score <= 1.0:
        raise ReferenceFault(
            f"suite {result.name!r}: a score of {result.score:g} is no share between 0 and 1, as "
            f"{table.metric} is"
        )
    value = result.score * table.scale
    error = standard_error(value, result.n, table)
    if result.standard_error is not None:
        error = result.standard_error * table.scale
    return _measured(value, error, result.n, table)


def _measured(value: float, error: float | None, n: int | None, table: PaperTable) -> Measured:
    doubt = error
    if error == 0 and n:
        shrunk = table.scale * (value / table.scale * n + 1) / (n + 2)
        doubt = standard_error(shrunk, n, table)
    return Measured(value=value, error=error, doubt=doubt)


def _ranks_in(name: str, rows: Sequence[PaperRow], table: PaperTable) -> dict[int, int]:
    """Ranks of the rows that have the set, by the row's place."""
    places = [place for place, row in enumerate(rows) if name in row.cells]
    values = [rows[place].cells[name] for place in places]
    ranks = competition_ranks(values, lower_is_better=table.lower_is_better)
    return dict(zip(places, ranks, strict=True))


def _line(
    row: PaperRow,
    place: int,
    table: PaperTable,
    ours: Mapping[str, Measured],
    ranks: Mapping[str, Mapping[int, int]],
    *,
    own: bool,
) -> ComparedRow:
    theirs = {
        name: _measured(value, standard_error(value, n, table), n, table)
        for name, value in row.cells.items()
        for n in (table.sets[name],)
    }
    theirs = {} if own else theirs
    cells = {
        name: Cell(paper=theirs.get(name), ours=ours.get(name), rank=ranks.get(name, {}).get(place))
        for name in table.sets
    }
    places = [by_place.get(place) for by_place in ranks.values()]
    known = [rank for rank in places if rank is not None]
    return ComparedRow(
        system=row.system,
        model=row.model,
        own=own,
        cells=cells,
        averages={
            name: _average(name, average, row, theirs, ours, own=own)
            for name, average in table.averages.items()
            if average.of == "mean"
        },
        average_rank=math.fsum(known) / len(known) if known and len(known) == len(places) else None,
    )


def _average(
    name: str,
    average: Average,
    row: PaperRow,
    theirs: Mapping[str, Measured],
    ours: Mapping[str, Measured],
    *,
    own: bool,
) -> Cell:
    """The printed average and ours. Errors come from the cells, and need all of them."""
    printed = row.averages.get(name)
    paper = None
    if printed is not None and not own:
        computed = _mean([theirs.get(one) for one in average.sets])
        paper = Measured(value=printed)
        if computed is not None:
            paper = Measured(value=printed, error=computed.error, doubt=computed.doubt)
    return Cell(paper=paper, ours=_mean([ours.get(one) for one in average.sets]))


def _mean(cells: Sequence[Measured | None]) -> Measured | None:
    """Mean of independent values with equal weights; None if a value is absent."""
    present = [cell for cell in cells if cell is not None]
    if not present or len(present) < len(cells):
        return None
    value = math.fsum(cell.value for cell in present) / len(present)
    errors = [cell.error for cell in present if cell.error is not None]
    doubts = [cell.doubt for cell in present if cell.doubt is not None]
    if len(errors) < len(present) or len(doubts) < len(present):
        return Measured(value=value)
    error, doubt = (math.hypot(*some) / len(present) for some in (errors, doubts))
    return Measured(value=value, error=error, doubt=doubt)


def _together(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else math.hypot(one, other)
