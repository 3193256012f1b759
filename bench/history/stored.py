"""Histories as files: JSON lines, one event a line."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
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
