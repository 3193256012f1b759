"""Whether two tables of rows are the answer to the same question (VerlTool, equation 8). Pure.

Rows are compared as multisets, or in their order where the question asks for one; the columns may
stand in one other order, the same for all rows. Floats are the same within `CLOSE`, texts in
Unicode's normal form C. Nothing else may differ. Work is bounded: the search for the order of the
columns ends after `MOST_TRIES` columns, and then the tables count as different.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from toolwright.reading.answers import normal_form

MOST_TRIES = 2000
"""Columns that are compared with a column, each a pass over the rows."""
MOST_STEPS = 20_000_000
"""Rows in all of these passes; two passes a column are always made."""
CLOSE = 1e-9
"""Largest difference of two equal floats, as a share of the larger one: databases add in any order.
Whole numbers are the same only if they are equal."""
CLOSE_TO_ZERO = 1e-12
"""Largest float that equals 0."""
_TOKENS = re.compile(
    r"/\*.*?(?:\*/|\Z)|'(?:[^']|'')*+(?:'|\Z)|\"(?:[^\"]|\"\")*+(?:\"|\Z)|`[^`]*(?:`|\Z)"
    r"|\[[^\]]*(?:\]|\Z)|--[^\n]*|[()]|\border\s+by\b",
    re.IGNORECASE | re.DOTALL,
)
"""A comment, a quoted text or a name in brackets is one token: its content is not a mark."""

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
    mine = [[_cell(value) for value in row] for row in pred]
    wanted = [[_cell(value) for value in row] for row in gold]
    same = _classes(number for row in (*mine, *wanted) for cell in row for number in _floats(cell))
    ours = [tuple(_in_class(row[column], same) for row in mine) for column in range(width)]
    theirs = [tuple(_in_class(row[column], same) for row in wanted) for column in range(width)]
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
        return "NaN" if math.isnan(value) else value
    if isinstance(value, str):
        return normal_form(value)
    if value is None or isinstance(value, int | bytes):
        return value
    if isinstance(value, list | tuple):
        return tuple(map(_cell, value))
    return f"{type(value).__name__} {value!r}"


def _floats(cell: Hashable) -> Iterator[float]:
    """Numbers in a cell that a float may equal."""
    if isinstance(cell, tuple):
        for one in cell:
            yield from _floats(one)
    elif isinstance(cell, float) or (isinstance(cell, int) and abs(cell) < 2**53):
        yield cell


def _classes(numbers: Iterable[float]) -> dict[float, float]:
    """For each number the one that stands for its class. Neighbours that are close are in one
    class, whatever digit a rounding would cut; a class has one whole number at most."""
    first: dict[float, float] = {}
    last: float | None = None
    whole = False
    for number in sorted(set(numbers)):
        exact = isinstance(number, int)
        if last is not None and _close(last, number) and not (exact and whole):
            first[number] = first[last]
        else:
            first[number], whole = number, False
        last, whole = number, whole or exact
    return first


def _close(one: float, other: float) -> bool:
    nothing = CLOSE_TO_ZERO if one == 0 or other == 0 else 0.0
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=nothing)


def _in_class(cell: Hashable, same: Mapping[float, float]) -> Hashable:
    if isinstance(cell, tuple):
        return tuple(_in_class(one, same) for one in cell)
    return same.get(cell, cell) if isinstance(cell, int | float) else cell
