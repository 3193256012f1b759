"""Rows of JSONL and Parquet files by their number, each read when it is asked for.

Invariants
- Opening reads the file once, from end to end: it is hashed, its rows are found, and what is no
  task is told apart. Of a JSONL file the places of its rows are kept, of a Parquet file nothing;
  media that stand in the rows themselves are not read.
- Row n stays row n, whatever other rows are bad. Empty lines are no rows.
- A file that changes while it is open is noticed, and no row of the new one is taken for an old.

Everything here blocks, and is used by one thread at a time.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from engine.core.tasks.doubts import RowDoubts
from engine.core.tasks.rows import MEDIA_COLUMNS, read_task
from engine.errors import StartupError
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.reading.task_rows.row_files import (
    NotParquet,
    lines_of,
    open_parquet,
    parquet_rows,
    too_long,
)
from toolwright.reading.task_rows.rows import read_json
from toolwright.types import Task


class RowFile(Protocol):
    """An open file. sha256: of all its bytes. bad: its rows that are no tasks, by number. doubts:
    what is seldom meant of the others."""

    @property
    def sha256(self) -> str: ...

    @property
    def bad(self) -> Mapping[int, RowRefused]: ...

    @property
    def doubts(self) -> RowDoubts: ...

    def __len__(self) -> int: ...

    def row(self, number: int) -> Any:
        """The row as it stands there, from 0. RowRefused where it cannot be read, StartupError
        where the file is not the one any more that was opened."""
        ...

    def where(self, number: int) -> str:
        """The row's place, for people."""
        ...


def open_rows(file: Path, *, max_bad_rows: int) -> RowFile:
    """StartupError for a file that cannot be read, that has no row which is a task, or more than
    `max_bad_rows` which are none."""
    if not file.is_file():
        raise StartupError(
            f"task source: no file {file}: put it there, or mend the `source` of [task] or of the "
            "evaluation suite that names it"
        )
    try:
        rows: RowFile = JsonlFile(file) if file.suffix == ".jsonl" else ParquetFile(file)
    except OSError as error:
        raise StartupError(f"task source: {file} cannot be read: {error}") from error
    if not len(rows):
        raise StartupError(f"task source: {file} has no rows: write a question a line")
    if rows.bad:
        first = min(rows.bad)
        tell = f"{rows.where(first)}: {rows.bad[first]}"
        if len(rows.bad) == len(rows):
            raise StartupError(f"task source: no row of {file} is a task; {tell}")
        if len(rows.bad) > max_bad_rows:
            raise StartupError(
                f"task source: {len(rows.bad)} of {len(rows)} rows of {file} are no tasks, more "
                f"than engine.max_bad_rows = {max_bad_rows}; {tell}. Mend them, or raise the bound"
            )
    return rows


class JsonlFile:
    """One object a line."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offsets = array("Q")
        self._lengths = array("Q")
        self._lines = array("Q")
        self.bad: dict[int, RowRefused] = {}
        self.doubts = RowDoubts()
        self._open = file.open("rb")
        self._stamp = _stamp(self._open)
        digest = hashlib.sha256()
        offset = 0
        for line_number, (line, length) in enumerate(lines_of(self._open, digest.update), 1):
            if line is None or line.strip():
                number = len(self._offsets)
                self._offsets.append(offset)
                self._lengths.append(length)
                self._lines.append(line_number)
                try:
                    self.doubts.look(_task(line, f"{file.stem}-{number}", file.stem))
                except RowRefused as refused:
                    self.bad[number] = refused
            offset += length
        self.sha256 = digest.hexdigest()

    def __len__(self) -> int:
        return len(self._offsets)

    def row(self, number: int) -> Any:
        _raise_again(self.bad.get(number))
        if _stamp(self._open) != self._stamp:
            raise _changed(self._file)
        self._open.seek(self._offsets[number])
        return read_json(self._open.read(self._lengths[number]))

    def where(self, number: int) -> str:
        return f"{self._file}:{self._lines[number]}"


class ParquetFile:
    """Columns of any kind; media columns are read with their row."""

    def __init__(self, file: Path) -> None:
        self._path = file
        self.bad: dict[int, RowRefused] = {}
        self.doubts = RowDoubts()
        with file.open("rb") as opened:
            self._stamp = _stamp(opened)
            self.sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
        try:
            self._file = open_parquet(file)
            names = self._file.schema_arrow.names
            groups = range(self._file.num_row_groups)
            self._ends = array("Q")
            for group in groups:
                rows = self._file.metadata.row_group(group).num_rows
                self._ends.append(rows + (self._ends[-1] if self._ends else 0))
            columns = [name for name in names if name not in MEDIA_COLUMNS]
            for number, row in enumerate(self._rows(groups, columns)):
                try:
                    if isinstance(row, RowRefused):
                        raise row
                    self.doubts.look(read_task(row, name=f"{number}", data_source=""))
                except RowRefused as refused:
                    self.bad[number] = refused.again()
        except NotParquet as error:
            raise StartupError(f"task source: {file} is no Parquet: {error}") from error
        self._at = -1
        """The row that `_walk` gives next."""
        self._group = -1
        self._walk: Iterator[dict[str, Any] | RowRefused] = iter(())

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def row(self, number: int) -> Any:
        _raise_again(self.bad.get(number))
        with self._path.open("rb") as opened:
            if _stamp(opened) != self._stamp:
                raise _changed(self._path)
        group = bisect_right(self._ends, number)
        if group != self._group or number < self._at:
            self._group = group
            self._at = self._ends[group - 1] if group else 0
            self._walk = self._rows([group], None)
        try:
            for found in self._walk:
                self._at += 1
                if self._at > number:
                    if isinstance(found, RowRefused):
                        raise found
                    return found
        except NotParquet as error:
            self._group = -1
            raise RowRefused("not_parquet", f"cannot be read: {error}") from error
        raise _changed(self._path)

    def where(self, number: int) -> str:
        return f"{self._path}, row {number + 1}"

    def _rows(
        self, groups: Iterable[int], columns: list[str] | None
    ) -> Iterator[dict[str, Any] | RowRefused]:
        return parquet_rows(self._file, groups=groups, columns=columns)


def _raise_again(refused: RowRefused | None) -> None:
    if refused is not None:
        raise refused.again()


def _task(line: bytes | None, name: str, data_source: str) -> Task:
    """The task of a line, None for one that is too long to be read. RowRefused."""
    if line is None:
        raise too_long()
    return read_task(read_json(line), name=name, data_source=data_source)


def _stamp(opened: BinaryIO) -> tuple[int, ...]:
    """Differs where the content does, but for a writer who hides it."""
    stat = os.fstat(opened.fileno())
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _changed(file: Path) -> StartupError:
    return StartupError(
        f"task source: {file} changed while the run goes on, so that its rows are others: give a "
        "new run the new file, and this one the old"
    )
