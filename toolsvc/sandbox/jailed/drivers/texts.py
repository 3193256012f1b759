"""What the file tools do to a text, and what can be taken back; no file is touched here."""

from __future__ import annotations

_HISTORY = 8 * 1024 * 1024
"""Characters kept for undoing, of all files together."""
_AROUND = 4
"""Lines shown before and after a change."""
_PLACES = 10
"""Told of a text that occurs more than once."""


class EditFailed(Exception):
    """The message is for the policy."""


class Changes:
    """What the file tools did, newest last; the oldest are forgotten."""

    def __init__(self) -> None:
        # (path, text before or None where there was no file, text after)
        self._changes: list[tuple[str, str | None, str]] = []

    def add(self, path: str, before: str | None, after: str) -> None:
        self._changes.append((path, before, after))
        held = sum(len(before or "") + len(after) for _, before, after in self._changes)
        while held > _HISTORY and len(self._changes) > 1:
            _, before, after = self._changes.pop(0)
            held -= len(before or "") + len(after)

    def last(self, path: str) -> tuple[str | None, str] | None:
        """Text before and after the last change of this file; None if there is none."""
        for changed, before, after in reversed(self._changes):
            if changed == path:
                return before, after
        return None

    def forget_last(self, path: str) -> None:
        """It was taken back."""
        for position in range(len(self._changes) - 1, -1, -1):
            if self._changes[position][0] == path:
                del self._changes[position]
                return


def shown(text: str, lines: list[int] | None) -> str:
    """The text with line numbers; `lines`: first and last, from 1, -1 = to the end."""
    count = _count(text)
    first, last = lines or (1, -1)
    last = count if last == -1 else last
    if not 1 <= first <= max(count, 1) or (lines and not first <= last):
        raise EditFailed(f"view_range {lines}: the file has {count} lines")
    return _numbered(text, first, last)


def replaced(text: str, path: str, old: str, new: str) -> tuple[str, str]:
    """The text with `new` in place of `old`, which occurs once, and what is shown of it."""
    if not old:
        raise EditFailed("old_str is empty")
    at = text.find(old)
    if at < 0:
        raise EditFailed(f"old_str does not occur in {path}: it has to match exactly")
    lines = [text.count("\n", 0, at) + 1]
    again = text.find(old, at + 1)
    while again >= 0 and len(lines) < _PLACES:
        lines.append(text.count("\n", 0, again) + 1)
        again = text.find(old, again + 1)
    if len(lines) > 1:
        where = ", ".join(map(str, lines))
        raise EditFailed(f"old_str occurs in lines {where} of {path}: give more text around it")
    changed = text[:at] + new + text[at + len(old) :]
    return changed, _around(changed, lines[0], new.count("\n"))


def inserted(text: str, line: int, new: str) -> tuple[str, str]:
    """The text with `new` after `line`, and what is shown of it."""
    lines = text.split("\n")
    count = _count(text)
    if not 0 <= line <= count:
        raise EditFailed(f"insert_line {line}: the file has {count} lines")
    lines[line:line] = new.removesuffix("\n").split("\n")
    changed = "\n".join(lines)
    return changed, _around(changed, line + 1, new.count("\n"))


def _count(text: str) -> int:
    return len(text.split("\n")) - text.endswith("\n")


def _numbered(text: str, first: int, last: int) -> str:
    lines = text.split("\n")
    if text.endswith("\n"):
        lines.pop()
    return "\n".join(f"{at:6}\t{line}" for at, line in enumerate(lines[first - 1 : last], first))


def _around(text: str, line: int, more: int) -> str:
    return _numbered(text, max(1, line - _AROUND), line + more + _AROUND)
