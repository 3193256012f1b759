"""A comparison as text for a terminal: the table with ours below, then ours minus each row.

A stranger may have chosen the names of suites: control characters are replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.offline.reference.comparing import BOUND, Cell, ComparedRow, Comparison, Measured
from toolwright.page.text import plain

NONE = "-"


def shown(comparison: Comparison) -> str:
    """Lines of text, as wide as the table; no newline at the end."""
    return "\n".join(plain(line, keep="") for line in _lines(comparison))


def columns(comparison: Comparison) -> list[str]:
    """Heads of the columns after system and model."""
    table = comparison.table
    means = [name for name, one in table.averages.items() if one.of == "mean"]
    return [*table.sets, *means, "rank"]


def values(comparison: Comparison, line: ComparedRow) -> list[str]:
    """One row: values with standard errors and, in brackets, ranks; then the average rank."""
    places = comparison.table.decimals
    cells = [*line.cells.values(), *line.averages.values()]
    sides = [cell.ours if line.own else cell.paper for cell in cells]
    ranks = [cell.rank for cell in cells]
    shown = [_value(side, rank, places) for side, rank in zip(sides, ranks, strict=True)]
    return [*shown, _rank(line)]


def differences(comparison: Comparison, line: ComparedRow) -> list[str]:
    """Ours minus one row of the paper. A star marks differences beyond BOUND standard errors."""
    places = comparison.table.decimals
    cells = [*line.cells.values(), *line.averages.values()]
    return [_difference(cell, places) for cell in cells]


def notes(comparison: Comparison) -> list[str]:
    """Notes for readers: the source, missing parts, contradictions, suites left out."""
    table, paper = comparison.table, comparison.paper
    found = [f"{table.metric}; {table.source}"]
    if not table.complete:
        found.append(f"not here: {table.missing}")
    if table.notes:
        found.append(table.notes)
    found += [f"{one.where}: {one.what}" for one in paper.contradictions if one.where == table.id]
    if comparison.not_compared:
        found.append(f"no set of this table: {', '.join(comparison.not_compared)}")
    return found


def has_ours(comparison: Comparison) -> bool:
    return any(line.own for line in comparison.lines)


def _lines(comparison: Comparison) -> Iterator[str]:
    paper, table = comparison.paper, comparison.table
    yield f"{paper.name}:{table.id}  {table.title}"
    heads = ["system", "model", *columns(comparison)]
    rows = [[line.system, line.model, *values(comparison, line)] for line in comparison.lines]
    yield from _aligned([heads, *rows])
    if has_ours(comparison):
        yield ""
        yield f"ours minus theirs (* more than {BOUND} standard errors)"
        below = [line for line in comparison.lines if not line.own]
        minus = [[line.system, line.model, *differences(comparison, line)] for line in below]
        yield from _aligned([heads[:-1], *minus])
    yield ""
    yield from notes(comparison)


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        names = [text.ljust(width) for text, width in zip(row[:2], widths[:2], strict=True)]
        numbers = [text.rjust(width) for text, width in zip(row[2:], widths[2:], strict=True)]
        yield "  ".join([*names, *numbers]).rstrip()


def _value(side: Measured | None, rank: int | None, places: int) -> str:
    if side is None:
        return NONE
    error = "" if side.error is None else f"±{side.error:.{places}f}"
    place = "" if rank is None else f" ({rank})"
    return f"{side.value:.{places}f}{error}{place}"


def _difference(cell: Cell, places: int) -> str:
    difference = cell.difference
    if difference is None:
        return NONE
    error = "" if difference.error is None else f"±{difference.error:.{places}f}"
    return f"{difference.value:+.{places}f}{error}{'*' if cell.apart else ''}"


def _rank(line: ComparedRow) -> str:
    return NONE if line.average_rank is None else f"{line.average_rank:.2f}"
