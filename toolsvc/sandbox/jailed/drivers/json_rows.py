"""A query's rows as JSON, for a program that compares them; pure.

`{"rows": [[1, "a", null], ...]}`: integers, floats, texts and nulls as they are, a blob as
`{"blob": hex}`. Unlike a `Table` it leaves nothing of a row out, so rows that do not all fit are
not shown at all: a part of them is nothing to compare.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


class JsonRows:
    """`characters`: of the whole text, at most."""

    def __init__(self, *, characters: int) -> None:
        self._room = characters - len(_text([]))
        self._rows: list[str] = []
        self.cut = False
        """There are more rows than fit."""

    def add(self, row: Sequence[Any]) -> bool:
        """False once no more rows are wanted."""
        line = json.dumps([_value(value) for value in row])
        self._room -= len(line) + 2
        if self._room < 0:
            self.cut = True
            self._rows.clear()
        else:
            self._rows.append(line)
        return not self.cut

    def text(self) -> str:
        return _text(self._rows)


def _text(rows: Sequence[str]) -> str:
    return f'{{"rows": [{", ".join(rows)}]}}'


def _value(value: Any) -> Any:
    return {"blob": value.hex()} if isinstance(value, bytes) else value
