"""Whether two tables of rows are the answer to the same question (VerlTool, equation 8). Pure.

Rows are compared as multisets, or in their order where the question asks for one; the columns may
stand in one other order, the same for all rows. Nothing else may differ. Work is bounded: the
search for the order of the columns ends after `MOST_TRIES` columns, and then the tables count as
different.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from decimal import Decimal
from typing import Any

MOST_TRIES = 2000
"""Columns that are compared with a column, each a pass over the rows."""
MOST_STEPS = 20_000_000
"""Rows in all of these passes; two passes a column are always made."""
DIGITS = 10
"""Of a number that is no whole one, or is larger than floats count: databases add in any order."""
_TOKENS = re.compile(
    r"/\*.*?(?:\*/|\Z)|'(?:[^']|'')*+(?:'|\Z)|\"(?:[^\"]|\"\")*+(?:\"|\Z)|`[^`]*(?:`|\Z)"
    r"|--[^\n]*|[()]|\border\s+by\b",
    re.IGNORECASE | re.DOTALL,
)
"""A comment or a quoted text is one token: whatever stands in it is no mark."""

Rows = Sequence[Sequence[Any]]


def same_rows(pred: Rows, gold: Rows, *, ordered: bool) -> bool:
    """Whether a query's rows are those of the right one."""
    if len(pred) != len(gold):
        return False
    if not gold:
        return True
    widths = {len(row) for row in pred} | {len(row) for row in gold}
    if len(widths) != 1:
        return False
    width = widths.pop()
    ours = [tuple(_cell(row[column]) for row in pred) for column in range(width)]
    theirs = [tuple(_cell(row[column]) for row in gold) for column in range(width)]
    if ordered:
        return Counter(ours) == Counter(theirs)
    return _Search(ours, theirs).found()


def asks_for_order(sql: str) -> bool:
    """Whether a query orders its result: ORDER BY outside of parentheses, strings and comments."""
    depth = 0
    for token in _TOKENS.finditer(sql):
        mark = token[0]
        if mark == "(":
            depth += 1
        elif mark == ")":
            depth -= 1
        elif depth == 0 and mark[0] in "oO":
            return True
    return False


class _Search:
    """For each column of the right table one of the other, so that the rows are the same.

    A state is which rows are equal so far: a number for each row of both tables, the same for equal
    ones. A column is possible where the numbers that it leads to are as frequent on both sides.
    """

    def __init__(self, ours: list[tuple[Hashable, ...]], theirs: list[tuple[Hashable, ...]]):
        self._ours = ours
        self._theirs = theirs
        rows = len(theirs[0]) if theirs else 0
        self._left = max(min(MOST_TRIES, MOST_STEPS // (rows + 1)), 2 * len(theirs))

    def found(self) -> bool:
        contents = [Counter(column) for column in self._ours]
        possible = [
            [number for number, held in enumerate(contents) if held == wanted]
            for wanted in map(Counter, self._theirs)
        ]
        rows = len(self._theirs[0]) if self._theirs else 0
        # The columns with fewest candidates first: a wrong guess is noticed soonest.
        order = sorted(range(len(possible)), key=lambda column: len(possible[column]))
        return self._extend(order, possible, frozenset(), [0] * rows, [0] * rows)

    def _extend(
        self,
        order: list[int],
        possible: list[list[int]],
        used: frozenset[int],
        ours: list[int],
        theirs: list[int],
    ) -> bool:
        if not order:
            return True
        tried: set[tuple[Hashable, ...]] = set()
        for number in possible[order[0]]:
            column = self._ours[number]
            if number in used or column in tried:
                continue  # a twin of a column that did not lead to the end does not either
            tried.add(column)
            self._left -= 1
            if self._left < 0:
                return False
            names: dict[tuple[int, Hashable], int] = {}
            mine = [names.setdefault(pair, len(names)) for pair in zip(ours, column, strict=True)]
            wanted = zip(theirs, self._theirs[order[0]], strict=True)
            other = [names.setdefault(pair, len(names)) for pair in wanted]
            if Counter(mine) == Counter(other) and self._extend(
                order[1:], possible, used | {number}, mine, other
            ):
                return True
        return False


def _cell(value: Any) -> Hashable:
    """The value as it is compared: 1, 1.0 and Decimal("1.00") are one, and so are two NaN."""
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 2**53:
            return int(value)
        return "NaN" if math.isnan(value) else float(f"{value:.{DIGITS}g}")
    if value is None or isinstance(value, int | str | bytes):
        return value
    if isinstance(value, list | tuple):
        return tuple(map(_cell, value))
    return f"{type(value).__name__} {value!r}"
