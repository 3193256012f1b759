"""Columns of text for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

NONE = "-"
"""Cell without a value."""
GAP = "  "


def aligned(rows: Sequence[Sequence[str]], *, right: Sequence[int]) -> Iterator[str]:
    """Lines with columns of one width. right: positions of right-aligned columns."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield GAP.join(cells).rstrip()


def rate(found: Mapping[str, Any]) -> str:
    """A rate of `Rates.shown` with its standard error and its denominator, in percent if it is a
    share."""
    value, error = found["rate"], found["standard_error"]
    form, digits = (".1%", ".1%") if found.get("share") else (".4g", ".2g")
    also = "" if error is None else f" ± {error:{digits}}"
    return f"{value:{form}}{also} of {found['of']:,g}"
