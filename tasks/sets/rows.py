"""Rows of a published file, one after the other: JSONL, a JSON list, CSV, TSV or Parquet. A Harbor
task folder is one row, and its file is its task.toml.

Never more than one row, or one small batch of Parquet, is in memory; a row has a bound. A row that
cannot be read is a RowRefused in its place; a file that cannot be read is an UnreadableFile.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from tasks.errors import UnreadableFile
from tasks.sets.task_folders import TASK_FILE, task_files, task_row
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.reading.task_rows.row_files import (
    MOST_ROW_BYTES,
    NotParquet,
    lines_of,
    open_parquet,
    parquet_rows,
    too_long,
)
from toolwright.reading.task_rows.rows import read_json

MOST_ROW_CHARS = MOST_ROW_BYTES
_CHUNK = 1 << 20
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
_TOKENS = re.compile(r'["\\{}\[\],]')

Row = dict[str, Any]
Found = tuple[str, Row | RowRefused]
"""Where a row stands, and the row, or why it cannot be read."""


def files_of(path: Path) -> list[Path]:
    """The file, or all files of a folder that can be read, in the order of their names."""
    if path.is_dir():
        found = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES and one.is_file())
        found = found or task_files(path)
        if not found:
            raise UnreadableFile(
                f"{path} holds no file that ends in {', '.join(SUFFIXES)}, and no folder with a "
                f"{TASK_FILE}"
            )
        return found
    if not path.exists():
        raise UnreadableFile(f"no file {path}: put it there, or name it as it is called")
    if path.suffix not in SUFFIXES:
        raise UnreadableFile(f"{path} is not read: its name ends in none of {', '.join(SUFFIXES)}")
    return [path]


def rows_of(file: Path) -> Iterator[Found]:
    """The rows of one file, in order. Raises UnreadableFile."""
    try:
        match file.suffix:
            case ".parquet":
                yield from _parquet(file)
            case ".csv" | ".tsv":
                yield from _csv(file)
            case ".json":
                yield from _json(file)
            case ".toml":
                yield file.parent.name, task_row(file)
            case _:
                yield from _lines(file)
    except OSError as error:
        raise UnreadableFile(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{file} is not UTF-8: {error}; convert it") from error


def count_rows(file: Path) -> int:
    """Number of rows: from the footer of a Parquet file, by reading any other file."""
    if file.suffix == ".parquet":
        return int(_opened_parquet(file).metadata.num_rows)
    return sum(1 for _ in rows_of(file))


def _lines(file: Path) -> Iterator[Found]:
    with file.open("rb") as opened:
        for number, (line, _) in enumerate(lines_of(opened), 1):
            if line is None or line.strip():
                yield f"{file.name}:{number}", too_long() if line is None else _object(line)


def _json(file: Path) -> Iterator[Found]:
    """A list of objects, or one object a line under the other name."""
    with file.open(encoding="utf-8-sig") as opened:
        first = " "
        while first and first.isspace():
            first = opened.read(1)
        if first != "[":
            yield from _lines(file)
            return
        for number, text in enumerate(_elements(opened, file), 1):
            yield f"{file.name}, row {number}", _object(text)


def _elements(opened: TextIO, file: Path) -> Iterator[str]:
    """The texts between the commas of a list whose opening bracket was read."""
    held, scanned, start = "", 0, 0
    depth, quoted, escaped = 1, False, -1
    while chunk := opened.read(_CHUNK):
        held = held[start:] + chunk
        scanned, start, escaped = scanned - start, 0, escaped - start
        for token in _TOKENS.finditer(held, scanned):
            at, mark = token.start(), token[0]
            if at == escaped:
                continue
            if quoted:
                escaped = at + 1 if mark == "\\" else escaped
                quoted = mark != '"'
            elif mark == '"':
                quoted = True
            elif mark in "{[":
                depth += 1
            elif mark in "}]":
                depth -= 1
            if quoted or not (depth == 0 or (depth == 1 and mark == ",")):
                continue
            if held[start:at].strip():
                yield held[start:at]
            start = at + 1
            if depth == 0:
                return
        scanned = len(held)
        if len(held) - start > MOST_ROW_CHARS:
            raise UnreadableFile(f"{file}: a row is longer than {MOST_ROW_CHARS} characters")
    raise UnreadableFile(f"{file} ends inside of its list: fetch it again")


def _object(text: bytes | str) -> Row | RowRefused:
    try:
        row = read_json(text)
    except RowRefused as refused:
        return refused
    if not isinstance(row, dict):
        return RowRefused("not_an_object", f"a row is an object, not {type(row).__name__}")
    return row


def _csv(file: Path) -> Iterator[Found]:
    csv.field_size_limit(MOST_ROW_CHARS)  # of the whole process: patches do not fit in 128 KiB
    with file.open(encoding="utf-8-sig", newline="") as opened:
        bounded = _RowLines(opened, file)
        reader = csv.DictReader(bounded, delimiter="\t" if file.suffix == ".tsv" else ",")
        number = 0
        while True:
            number += 1
            bounded.begin_row()
            found: Row | RowRefused
            try:
                found = dict(next(reader))
            except StopIteration:
                return
            except csv.Error as error:
                found = RowRefused("not_csv", f"line {reader.line_num} is not CSV: {error}")
            else:
                if None in found:
                    found = RowRefused("cells", "more cells than the header has names")
            yield f"{file.name}, row {number}", found


class _RowLines:
    """Lines of a CSV file. Raises UnreadableFile if those of one row have more than MOST_ROW_CHARS:
    a quotation mark that never ends would take the whole file for one row."""

    def __init__(self, opened: TextIO, file: Path) -> None:
        self._opened = opened
        self._file = file
        self._left = MOST_ROW_CHARS

    def begin_row(self) -> None:
        self._left = MOST_ROW_CHARS

    def __iter__(self) -> Iterator[str]:
        while line := self._opened.readline(self._left + 1):
            self._left -= len(line)
            if self._left < 0:
                raise UnreadableFile(
                    f"{self._file}: a row is longer than {MOST_ROW_CHARS} characters"
                )
            yield line


def _opened_parquet(file: Path) -> Any:
    try:
        return open_parquet(file)
    except NotParquet as error:
        raise UnreadableFile(str(error)) from error


def _parquet(file: Path) -> Iterator[Found]:
    number = 0
    try:
        for row in parquet_rows(_opened_parquet(file)):
            number += 1
            yield f"{file.name}, row {number}", row
    except NotParquet as error:
        raise UnreadableFile(f"{file}, after row {number}: {error}; fetch it again") from error
