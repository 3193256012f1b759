"""Rows of JSONL and Parquet files by number, each read on demand.

Invariants
- Opening reads the file once: it is hashed, its rows are found, and unusable rows are noted. Only
  the positions of JSONL rows stay in memory. Media inside rows are not read.
- Bad rows and empty lines do not change the numbers of other rows; empty lines have no number.
- A change of the open file is detected: no new row is taken for an old one.

All functions block, and one thread at a time uses a file.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from engine.core.tasks.row_index import RowIndex
from engine.core.tasks.row_warnings import RowWarnings
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


def open_rows(file: Path, *, max_bad_rows: int) -> RowFile:
    """Opens a file.

    Raises StartupError for an unreadable file, one without a usable row, or one with more than
    `max_bad_rows` unusable ones.
    """
    if not file.is_file():
        raise StartupError(
            f"task source: no file {file}: create it, or correct the `source` of [task] or of the "
            "evaluation suite"
        )
    try:
        rows: RowFile = JsonlFile(file) if file.suffix == ".jsonl" else ParquetFile(file)
    except OSError as error:
        raise StartupError(f"task source: {file} cannot be read: {error}") from error
    if not len(rows):
        raise StartupError(f"task source: {file} has no rows: write one question in each line")
    if rows.bad:
        first = min(rows.bad)
        example = f"{rows.where(first)}: {rows.bad[first]}"
        if len(rows.bad) == len(rows):
            raise StartupError(f"task source: no row of {file} is a task: {example}")
        if len(rows.bad) > max_bad_rows:
            raise StartupError(
                f"task source: {len(rows.bad)} of {len(rows)} rows of {file} are not tasks, more "
                f"than engine.max_bad_rows = {max_bad_rows}; {example}. Correct them, or raise the "
                "limit"
            )
    return rows


class JsonlFile:
    """An open file with one object in each line."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offsets = array("Q")
        self._lengths = array("Q")
        self._lines = array("Q")
        self.bad: dict[int, RowRefused] = {}
        """Unusable rows by number."""
        self.warnings = RowWarnings()
        """Warnings about the other rows."""
        self.index = RowIndex()
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
                task = None
                try:
                    task = _task(line, f"{file.stem}-{number}", file.stem)
                    self.warnings.look(task)
                except RowRefused as refused:
                    self.bad[number] = refused
                self.index.add(task)
            offset += length
        self.sha256 = digest.hexdigest()

    def __len__(self) -> int:
        return len(self._offsets)

    def row(self, number: int) -> Any:
        """A row as it is in the file, from 0.

        Raises RowRefused for an unreadable row, StartupError if the file has changed.
        """
        _raise_again(self.bad.get(number))
        if _stamp(self._open) != self._stamp:
            raise _changed(self._file)
        self._open.seek(self._offsets[number])
        return read_json(self._open.read(self._lengths[number]))

    def where(self, number: int) -> str:
        """The row's position, for users."""
        return f"{self._file}:{self._lines[number]}"


class ParquetFile:
    """The same for Parquet, with columns of any kind; media columns are read with their row."""

    def __init__(self, file: Path) -> None:
        self._path = file
        self.bad: dict[int, RowRefused] = {}
        self.warnings = RowWarnings()
        self.index = RowIndex()
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
                task = None
                try:
                    if isinstance(row, RowRefused):
                        raise row
                    task = read_task(row, name=f"{number}", data_source=file.stem)
                    self.warnings.look(task)
                except RowRefused as refused:
                    self.bad[number] = refused.again()
                self.index.add(task)
        except NotParquet as error:
            raise StartupError(f"task source: {file} is not Parquet: {error}") from error
        self._at = -1
        """Number of the row that `_walk` gives next."""
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


RowFile = JsonlFile | ParquetFile


def _raise_again(refused: RowRefused | None) -> None:
    if refused is not None:
        raise refused.again()


def _task(line: bytes | None, name: str, data_source: str) -> Task:
    """The task of a line. Raises RowRefused; line None means a line that is too long."""
    if line is None:
        raise too_long()
    return read_task(read_json(line), name=name, data_source=data_source)


def _stamp(opened: BinaryIO) -> tuple[int, ...]:
    """Changes with the file, unless its writer hides the change."""
    stat = os.fstat(opened.fileno())
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _changed(file: Path) -> StartupError:
    return StartupError(
        f"task source: {file} changed during the run: restore it, or start a new run with the new "
        "file"
    )
