"""A history as a file: one JSON object a line, in the order in which they were written.

A process that is killed while it writes leaves half of its last line, which the reader leaves out.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.history.events import AnyEvent


def _plain(value: Any) -> Any:
    """Token ids as a list. Raises NotImplementedError for another type that JSON cannot hold."""
    if isinstance(value, array):
        return value.tolist()
    raise NotImplementedError(f"a history cannot hold {type(value).__name__}")


def _made(kind: type, value: Any) -> Any:
    """Inverse of `_plain`."""
    if kind is array:
        return array("i", value)
    raise NotImplementedError(f"a history cannot hold {kind.__name__}")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
_DECODER = msgspec.json.Decoder(AnyEvent, dec_hook=_made)


class Lines:
    """A file that lines are appended to, each in one write: a kill loses none that was written."""

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)

    def write(self, line: msgspec.Struct) -> None:
        """Appends an event, or another struct that JSON can hold."""
        os.write(self._descriptor, _ENCODER.encode(line) + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


def whole_lines(file: Path) -> Iterator[bytes]:
    """Lines of the file that were written whole; no line where there is no file."""
    data = file.read_bytes() if file.exists() else b""
    yield from data[: data.rfind(b"\n") + 1].splitlines()


def read_events(file: Path) -> list[AnyEvent]:
    """Events of a file. Raises msgspec.ValidationError for a line that is not an event."""
    return [_DECODER.decode(line) for line in whole_lines(file)]
