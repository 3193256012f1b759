"""Histories as files: JSON lines, one event a line.

A whole history is written and read at once. A witness that may be killed appends its events one by
one; half of a last line is left out when they are read.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.history.events import AnyEvent, History
from bench.history.findings import HistoryError
from toolwright.reading.files import open_regular
from toolwright.reading.task_rows.row_files import MOST_ROW_BYTES, lines_of


def write_history(file: Path, history: Iterable[AnyEvent]) -> None:
    """Replaces the file. OSError where it cannot be written."""
    with file.open("wb") as opened:
        for event in history:
            opened.write(_ENCODER.encode(event))
            opened.write(b"\n")


def read_history(file: Path) -> History:
    """Inverse of `write_history`. Raises HistoryError for a line that is not an event, OSError for
    a file that cannot be read."""
    found: History = []
    with open_regular(file) as opened:
        for number, (line, length) in enumerate(lines_of(opened), 1):
            if line is None:
                raise HistoryError(
                    f"{file}, line {number} has {length} bytes; an event has at most "
                    f"{MOST_ROW_BYTES}"
                )
            try:
                found.append(_DECODER.decode(line))
            except (msgspec.MsgspecError, OverflowError, RecursionError) as error:
                raise HistoryError(f"{file}, line {number} is not an event: {error}") from error
    return found


class Appender:
    """A file that lines are appended to, each in one write: a kill loses no line that was
    written."""

    def __init__(self, file: Path) -> None:
        """Raises OSError if the file cannot be opened."""
        self._descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)

    def write(self, line: msgspec.Struct) -> None:
        """Appends an event, or another struct of JSON values and token ids."""
        os.write(self._descriptor, _ENCODER.encode(line) + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


def whole_lines(file: Path) -> Iterator[bytes]:
    """Lines of an appended file, without one that was not written whole; empty if there is no
    file."""
    data = file.read_bytes() if file.exists() else b""
    yield from data[: data.rfind(b"\n") + 1].splitlines()


def read_appended(file: Path) -> History:
    """Events that an `Appender` wrote. Raises msgspec.MsgspecError for a line that is not an
    event."""
    return [_DECODER.decode(line) for line in whole_lines(file)]


def _to_list(value: Any) -> Any:
    if isinstance(value, array):
        return value.tolist()
    raise TypeError(f"an event cannot hold a {type(value).__name__}")


def _to_array(kind: type, value: Any) -> Any:
    if kind is not array or not isinstance(value, list):
        raise ValueError(f"expected token ids, found {type(value).__name__}")
    try:
        return array("i", value)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"not token ids: {error}") from error


_ENCODER = msgspec.json.Encoder(enc_hook=_to_list)
_DECODER = msgspec.json.Decoder(AnyEvent, dec_hook=_to_array)
