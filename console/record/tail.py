"""Follows a JSONL file that grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from console.record.lines import json_object

MOST = 4 << 20
"""Bytes of one read; a longer line is passed over."""


class Tail:
    """New whole lines of a growing JSONL file, which need not exist yet.

    A line that holds no object is passed over: who watches goes on. A file that became shorter was
    begun anew, and is read from its start. `place`: bytes that were read, where another goes on.
    """

    def __init__(self, path: Path, place: int = 0) -> None:
        self._path = path
        self.place = place

    def read(self) -> list[dict[str, Any]]:
        """Objects since the last call. Empty while the file cannot be read."""
        found: list[dict[str, Any]] = []
        while (piece := self.read_piece()) is not None:
            found += [row for _, row in piece if row is not None]
        return found

    def read_piece(self) -> list[tuple[int, dict[str, Any] | None]] | None:
        """(byte at which it begins, its object; None where it holds none) of each new line, of MOST
        bytes at most. None where nothing is new."""
        begins = self.place
        data = self._piece()
        if not data:
            return None
        if self.place < begins:
            begins = 0
        found = []
        for line in data.splitlines(keepends=True):
            if line.strip():
                found.append((begins, json_object(line)))
            begins += len(line)
        return found

    def _piece(self) -> bytes:
        """Whole lines, at most MOST bytes of them."""
        try:
            if not self._path.is_file():
                return b""
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self.place:
                    self.place = 0
                file.seek(self.place)
                data = file.read(MOST)
        except OSError:
            return b""
        whole = data[: data.rfind(b"\n") + 1]
        self.place += len(whole) or (len(data) if len(data) == MOST else 0)
        return whole or (b"\n" if len(data) == MOST else b"")
