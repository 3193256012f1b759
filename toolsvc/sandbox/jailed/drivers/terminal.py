"""What a terminal shows of what a program printed: of a progress bar, its last state.

Invariants
- A carriage return goes back to the start of its line, a backspace deletes the character before
  it, and "erase in line" (`ESC [ K`) removes what stood there before. Nothing else changes.
- Time is linear in the length of the text.
"""

from __future__ import annotations

import re

_STEPS = re.compile("[\r\b]")
_ERASE = re.compile("\x1b\\[[02]?K")
_MOST_BACKSPACES = 10_000
"""Backspaces of one text that take effect: each costs a step in Python."""


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
