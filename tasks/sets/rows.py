"""Rows of a published file, one after the other: JSONL, a JSON list, CSV, TSV or Parquet.

Never more than one row, or one small batch of Parquet, is in memory; a row has a bound. Whatever is
wrong with a file is an UnreadableFile that says where.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from tasks.errors import UnreadableFile

MOST_ROW_CHARS = 64 << 20
_CHUNK = 1 << 20
_BATCH = 64
"""Rows of a Parquet file in memory at a time."""
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
_TOKENS = re.compile(r'["\\{}\[\],]')

Row = dict[str, Any]


def files_of(path: Path) -> list[Path]:
    """The file, or all files of a folder that can be read, in the order of their names."""
    if path.is_dir():
        found = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES and one.is_file())
        if not found:
            raise UnreadableFile(f"{path} holds no file that ends in {', '.join(SUFFIXES)}")
        return found
    if not path.exists():
        raise UnreadableFile(f"no file {path}: put it there, or name it as it is called")
    if path.suffix not in SUFFIXES:
        raise UnreadableFile(f"{path} is not read: its name ends in none of {', '.join(SUFFIXES)}")
    return [path]


def rows_of(file: Path) -> Iterator[tuple[str, Row]]:
    """(where the row stands, the row) of one file."""
    try:
        match file.suffix:
            case ".parquet":
                yield from _parquet(file)
            case ".csv" | ".tsv":
                yield from _csv(file)
            case ".json":
                yield from _json(file)
            case _:
                yield from _lines(file)
    except OSError as error:
        raise UnreadableFile(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{file} is not UTF-8: {error}; convert it") from error


def count_rows(file: Path) -> int:
    """Of a Parquet file by its footer, of others by reading them."""
    if file.suffix == ".parquet":
        return int(_opened_parquet(file).metadata.num_rows)
    return sum(1 for _ in rows_of(file))


def _lines(file: Path) -> Iterator[tuple[str, Row]]:
    with file.open(encoding="utf-8-sig") as opened:
        number = 0
        while line := opened.readline(MOST_ROW_CHARS + 1):
            number += 1
            if len(line) > MOST_ROW_CHARS:
                raise UnreadableFile(f"{file}:{number} is longer than {MOST_ROW_CHARS} characters")
            if line.strip():
                where = f"{file.name}:{number}"
                yield where, _object(line, where)


def _json(file: Path) -> Iterator[tuple[str, Row]]:
    """A list of objects, or one object a line under the other name."""
    with file.open(encoding="utf-8-sig") as opened:
        first = " "
        while first and first.isspace():
            first = opened.read(1)
        if first != "[":
            yield from _lines(file)
            return
        for number, text in enumerate(_elements(opened, file), 1):
            where = f"{file.name}, row {number}"
            yield where, _object(text, where)


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


def _object(text: str, where: str) -> Row:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{where} is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise UnreadableFile(f"{where} is {type(row).__name__}: a row is an object")
    return row


def _csv(file: Path) -> Iterator[tuple[str, Row]]:
    with file.open(encoding="utf-8-sig", newline="") as opened:
        reader = csv.DictReader(opened, delimiter="\t" if file.suffix == ".tsv" else ",")
        try:
            for number, row in enumerate(reader, 1):
                where = f"{file.name}, row {number}"
                if None in row:
                    raise UnreadableFile(f"{where} has more cells than the header has names")
                yield where, dict(row)
        except csv.Error as error:
            raise UnreadableFile(f"{file.name}:{reader.line_num} is no CSV: {error}") from error


def _opened_parquet(file: Path) -> Any:
    import pyarrow.parquet  # heavy, and only some sets are Parquet

    try:
        return pyarrow.parquet.ParquetFile(file, buffer_size=_CHUNK, pre_buffer=False)
    except (pyarrow.ArrowException, OSError) as error:  # of a file that was cut off, either
        raise UnreadableFile(f"{file} is no Parquet, or cut off: {error}") from error


def _parquet(file: Path) -> Iterator[tuple[str, Row]]:
    opened = _opened_parquet(file)
    import pyarrow

    number = 0
    try:
        for batch in opened.iter_batches(_BATCH):
            for row in batch.to_pylist():
                number += 1
                yield f"{file.name}, row {number}", row
    except pyarrow.ArrowException as error:
        raise UnreadableFile(f"{file}, after row {number}: {error}; fetch it again") from error
