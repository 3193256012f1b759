"""The corpus file: JSON lines of `{"id", "contents"}`, read where they lie.

The layout is Search-R1's (Jin et al. 2025, arXiv 2503.09516). Nothing of the text is kept in
memory: a passage is found by its byte offset in the mapped file, 8 bytes a passage, which are
mapped too. So 21 million passages cost no more than the pages that are read. (`bm25s` has a corpus
as well: its offsets are a list, 48 bytes a passage in every worker, in a file beside the corpus.)
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from toolsvc.backends.search.errors import IndexFault
from toolsvc.backends.search.types import Passage

_PIECE = 16 << 20
_SHORT = 32
"""Bytes of a line that is looked at: it may be blank, as what follows the last newline is."""


def find_offsets(
    path: Path, progress: Callable[[int, int], object] = lambda done, total: None
) -> NDArray[np.uint64]:
    """Where each line that is not blank begins: [passages], bytes. Raises IndexFault for an empty
    file.

    `progress` gets bytes read and bytes in all.
    """
    try:
        size = path.stat().st_size
        file = path.open("rb")
    except OSError as error:
        raise IndexFault(f"corpus {path}: {error.strerror or error}") from error
    found = [np.zeros(1, np.uint64)]
    blank: list[int] = []
    with file:
        at = 0
        while piece := file.read(_PIECE):
            ends = np.flatnonzero(np.frombuffer(piece, np.uint8) == ord("\n"))
            found.append((ends + at + 1).astype(np.uint64))
            at += len(piece)
            progress(at, size)
    starts = np.concatenate(found)
    lengths = np.diff(np.append(starts, np.uint64(size)))
    short = np.flatnonzero(lengths < _SHORT)
    if len(short):
        with path.open("rb") as file:
            for line in short:
                file.seek(int(starts[line]))
                if not file.read(int(lengths[line])).strip():
                    blank.append(int(line))
        starts = np.delete(starts, blank)
    if not len(starts):
        raise IndexFault(f"corpus {path} is empty: it needs lines of id and contents")
    return starts


class Corpus:
    """The passages of a file by their numbers. May be read by several threads."""

    def __init__(self, path: Path, offsets: NDArray[np.uint64]) -> None:
        """`offsets`: what `find_offsets` found, in memory or mapped."""
        self.path = path
        self._offsets = offsets
        try:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise IndexFault(f"corpus {path} cannot be read: {error}") from error

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, row: int) -> Passage:
        start = int(self._offsets[row])
        end = self._bytes.find(b"\n", start)
        return parse(self._bytes[start : end if end >= 0 else None], self.path, row)

    def passages(self, first: int = 0, last: int | None = None) -> Iterator[Passage]:
        """Those with the numbers first .. last - 1."""
        return (self[row] for row in range(first, len(self) if last is None else last))

    def close(self) -> None:
        self._bytes.close()


def parse(line: bytes, path: Path, row: int) -> Passage:
    """One line. IndexFault names the passage if it is not what it should be."""
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise _malformed(path, row, str(error)) from error
    if not isinstance(entry, dict) or "id" not in entry:
        raise _malformed(path, row, "it has no id")
    contents = entry.get("contents")
    if not isinstance(contents, str):
        raise _malformed(path, row, "its contents are not text")
    return Passage(id=str(entry["id"]), contents=contents)


def _malformed(path: Path, row: int, why: str) -> IndexFault:
    return IndexFault(
        f"corpus {path}, passage {row}: {why}; every line must be a JSON object with id and "
        "contents (the title in quotation marks, a newline, the text)"
    )
