"""A set's records, one after the other, out of its published files.

Invariants
- Never more than a row is in memory, however large the file.
- The same files give the same records in the same order.
- A row that makes no question is rejected, counted and named, and the others are read. Files of
  which no row fits the set's layout are a WrongLayout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from tasks.errors import TaskFault, UnknownName, UnreadableFile, WrongLayout
from tasks.record import Record
from tasks.sets.evaluation import EVALUATION
from tasks.sets.layout import LAYOUT, HeldOut, Layout, record_of, with_mark
from tasks.sets.rows import Found, count_rows, files_of, rows_of
from tasks.sets.training import TRAINING
from toolwright.reading.task_rows.refusal import RowRefused

MOST_SAID = 600
"""Characters of a sentence about a rejected row."""
MOST_WRONG = 100
"""Rows of another layout, before the first that fits, after which the file is another set's."""
SETS: Mapping[str, Layout] = {layout.name: layout for layout in (*TRAINING, *EVALUATION)}


def layout_of(name: str) -> Layout:
    """UnknownName with those that are near."""
    if name in SETS:
        return SETS[name]
    near = [known for known in SETS if name.lower() in known or known in name.lower()]
    hint = f"did you mean {', '.join(near)}?" if near else "`tasks list` shows all"
    raise UnknownName(f"no set is called {name!r:.80}; {hint}")


class Reading:
    """The records of a set: an iterable, each pass of which reads the files anew.

    rejected: rows of the last pass so far that make no question, by reason.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        *,
        gold: Path | None = None,
        heldout: bool = False,
        question_marks: bool = False,
    ) -> None:
        """path: a file, or a folder of files that are one after the other in the order of their
        names. gold: the second file of a set that has one. heldout: the rows that the set's users
        keep out of training, and not the others. question_marks: put one behind each question that
        has none, as Search-R1 does; a row with a prompt in place of a question is a TaskFault then.
        """
        self.layout = layout_of(name)
        self.files = files_of(path)
        self.rejected: Counter[str] = Counter()
        self.first_rejected: dict[str, str] = {}
        """Place of the first row that was rejected for a reason, and what is wrong with it."""
        self._gold = gold
        self._heldout = heldout
        self._question_marks = question_marks
        if self.layout.gold and gold is None:
            raise TaskFault(
                f"set {name} comes with a second file, a line of SQL<TAB>database for each row: "
                "name it (gold)"
            )
        if self.layout.gold and len(self.files) > 1:
            raise TaskFault(f"set {name} has a second file for each file: read them one by one")
        if gold is not None and not self.layout.gold:
            raise TaskFault(f"set {name} has no second file: leave gold out")
        if heldout and self.layout.held_out is None:
            raise TaskFault(f"set {name} has no rows that are held out: it is whole files")

    def __iter__(self) -> Iterator[Record]:
        self.rejected.clear()
        self.first_rejected.clear()
        aside = self._aside()
        number = found = 0
        for file in self.files:
            split = file.stem if not self.layout.split else ""
            for where, row in self._rows(file):
                mine = (number in aside) == self._heldout
                number += 1
                if not mine:
                    continue
                try:
                    if isinstance(row, RowRefused):
                        raise row
                    record = record_of(
                        self.layout, row, number=number - 1, where=where, split=split
                    )
                except RowRefused as refused:
                    self._reject(refused, where)
                    if not found and self.rejected[_reason(LAYOUT)] > MOST_WRONG:
                        break
                    continue
                found += 1
                yield self._finished(record, where)
        if not found and set(self.rejected) == {_reason(LAYOUT)}:
            raise WrongLayout(self.first_rejected[_reason(LAYOUT)])
        if not found:
            raise WrongLayout(
                f"set {self.layout.name}: none of {number} rows of {self.files[0].parent} is a "
                f"question: {self.why_rejected() or 'there are no rows'}"
            )

    def why_rejected(self) -> str:
        """A phrase for each reason; empty if no row was rejected."""
        return "; ".join(
            f"{count} with {reason}, the first is {self.first_rejected[reason]}"
            for reason, count in self.rejected.items()
        )

    def _reject(self, refused: RowRefused, where: str) -> None:
        reason = _reason(refused.kind)
        self.rejected[reason] += 1
        said = str(refused)
        named = where if said == reason else said if where in said else f"{where}: {said}"
        self.first_rejected.setdefault(reason, named[:MOST_SAID])

    def _finished(self, record: Record, where: str) -> Record:
        if self._question_marks:
            if not record.question:
                raise TaskFault(
                    f"set {self.layout.name}: {where} is a finished prompt, in which no question "
                    "mark can be put behind the question: leave question_marks out, or read a set "
                    "of bare questions (flashrag_nq, flashrag_hotpotqa)"
                )
            record = replace(record, question=with_mark(record.question))
        if self.layout.held_out is not None:
            record = replace(record, split="heldout" if self._heldout else "train")
        return record

    def _aside(self) -> frozenset[int]:
        if self.layout.held_out is None:
            return frozenset()
        return held_out_rows(self.layout.held_out, sum(map(count_rows, self.files)))

    def _rows(self, file: Path) -> Iterator[Found]:
        if self._gold is None:
            yield from rows_of(file)
            return
        for pair, line in zip_longest(rows_of(file), _gold_lines(self._gold)):
            if pair is None or line is None:
                less, more = (file, self._gold) if pair is None else (self._gold, file)
                raise WrongLayout(
                    f"{less} has fewer rows than {more}: they are of different sets, or one of "
                    "them was cut off"
                )
            where, row = pair
            yield where, row if isinstance(row, RowRefused) else {**row, **line}


def _reason(kind: str) -> str:
    """A kind of refusal in words."""
    return kind.replace("_", " ")


def held_out_rows(rule: HeldOut, rows: int) -> frozenset[int]:
    """The numbers of the rows, from 0, that `rule` keeps out of training. At most half of them, so
    that an excerpt of a set has both parts."""
    order = np.random.default_rng(rule.seed).permutation(rows)
    return frozenset(int(number) for number in order[: min(rule.rows, rows // 2)])


def _gold_lines(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with file.open(encoding="utf-8-sig") as opened:
            for number, line in enumerate(opened, 1):
                if not line.strip():
                    continue
                sql, tab, database = line.rstrip().rpartition("\t")
                if not tab or not database.strip():
                    raise WrongLayout(f"{file}:{number} is no line of SQL<TAB>database")
                yield {"gold_sql": sql, "gold_database": database.strip()}
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"{file} cannot be read: {error}") from error
