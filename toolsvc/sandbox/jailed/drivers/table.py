"""A query's rows as the text that a policy reads; pure.

Rows come one at a time, and `add` says when no more are wanted: a query of a million rows costs no
more than what is shown of it. A table longer than `LONG` characters shows only its
first rows (VerlTool, table 13: 50 of them).

Columns are not aligned: blanks are tokens, and widths are known only after the last row.
"""

from __future__ import annotations

LONG = 9000
LONGEST_CELL = 1000


class Table:
    """`rows`: shown of a long table. `characters`: shown at most, in however few rows."""

    def __init__(self, columns: list[str], *, rows: int, characters: int) -> None:
        self._rows = rows
        self._room = characters
        self._head = _line(columns)[:characters]
        self._lines: list[str] = []
        self._size = len(self._head)
        self.cut = False
        """Rows, or parts of cells, are left out."""
        self._more = False

    def add(self, cells: list[str]) -> bool:
        """False once no more rows are wanted."""
        self.cut = self.cut or any(len(cell) > LONGEST_CELL for cell in cells)
        line = _line(cells)
        self._size += 1 + len(line)
        self._more = self._size > self._room or (
            self._size > LONG and len(self._lines) >= self._rows
        )
        if self._more:
            self.cut = True
            if self._size <= self._room:
                del self._lines[self._rows :]
        else:
            self._lines.append(line)
        return not self._more

    def text(self) -> str:
        shown = len(self._lines)
        if self._more:
            count = f"(long result: only the first {shown} rows are shown)"
        else:
            count = "(1 row)" if shown == 1 else f"({shown} rows)"
        return "\n".join((self._head, *self._lines, count))


def _line(cells: list[str]) -> str:
    return " | ".join(map(_cell, cells))


def _cell(text: str) -> str:
    if len(text) > LONGEST_CELL:
        text = f"{text[:LONGEST_CELL]}... ({len(text)} characters)"
    return text.replace("\r", "\\r").replace("\n", "\\n")
