"""What a terminal shows of what a program printed: of a progress bar, its last state.

Invariants
- A carriage return goes back to the start of its line. A backspace deletes the character before it.
  "Erase in line" (`ESC [ K`) removes what stood there before. Nothing else changes.
- Time is linear in the length of the text.
"""

from __future__ import annotations

import re

_STEPS = re.compile("[\r\b]")
_ERASE = re.compile("\x1b\\[[02]?K")
_MOST_BACKSPACES = 10_000
"""Backspaces of one text that take effect: each costs a step in Python."""

_LONGEST_LINE = 4096
"""Bytes of a line that is read again however little room is left."""


class Output:
    """The first `room` bytes of what was printed, without what a terminal overwrote: the thousand
    states of a progress bar leave room for what follows it."""

    def __init__(self, room: int, *, raw: bool = False) -> None:
        """`raw`: keep the first bytes as they are, whatever they are."""
        self._room = room
        self._raw = raw
        self._whole_lines = 0
        """Bytes of `kept` that no later byte can overwrite."""
        self._full = False
        self.kept = bytearray()
        self.dropped = 0

    def add(self, data: bytes) -> None:
        if self._full:
            self.dropped += len(data)
            return
        self.kept += data
        if len(self.kept) > self._room:
            self._compact()

    def _compact(self) -> None:
        if not self._raw:
            self._overwrite()
        self.dropped = max(0, len(self.kept) - self._room)
        self._full = self._full or self.dropped > 0
        del self.kept[self._room :]

    def _overwrite(self) -> None:
        text = self.kept[self._whole_lines :].decode("utf-8", "surrogateescape")
        self.kept[self._whole_lines :] = compacted(text).encode("utf-8", "surrogateescape")
        self._whole_lines = self.kept.rfind(b"\n") + 1
        # A line that is longer than the room left would be read again for each byte that follows.
        room_left = self._room - len(self.kept)
        self._full = len(self.kept) - self._whole_lines > max(_LONGEST_LINE, room_left)


def as_shown(text: str) -> str:
    """The text as it stands on a terminal once all of it was printed."""
    if not _STEPS.search(text):
        return text
    backspaces = text.count("\b") <= _MOST_BACKSPACES
    return "\n".join(
        _line(line, backspaces) if _STEPS.search(line) else line for line in text.split("\n")
    )


def compacted(text: str) -> str:
    """A text that looks the same, shorter where it can be, and to which more may be added: the
    last line keeps its last piece, at whose end the cursor stands."""
    done, line_end, last = text.rpartition("\n")
    before, step, piece = last.rpartition("\r")
    if step:
        last = f"{_line(before, True)}\r{piece}"
    return f"{as_shown(done)}{line_end}{last}"


def _line(line: str, backspaces: bool) -> str:
    shown = ""
    for piece in reversed(line.split("\r")):
        erases = _ERASE.search(piece)
        if erases:
            piece = _ERASE.sub("", piece)
        if backspaces and "\b" in piece:
            piece = _without_backspaces(piece)
        if len(piece) > len(shown):
            shown += piece[len(shown) :]
        if erases:
            break
    return shown.rstrip(" ")


def _without_backspaces(piece: str) -> str:
    first, *others = piece.split("\b")
    kept = list(first)
    for other in others:
        del kept[-1:]
        kept += other
    return "".join(kept)
