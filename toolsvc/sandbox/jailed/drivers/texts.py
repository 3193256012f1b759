"""What the file tools do to a text, and what can be taken back; no file is touched here.

Invariants
- A text is matched and shown with LF as line end, and changed with the line end that the file has
  at that place. No other line of the file changes.
- A lone CR ends a line only in a file without LF.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

_HISTORY = 8 * 1024 * 1024
"""Characters kept for undoing, of all files together."""
_AROUND = 4
"""Lines shown before and after a change."""
_PLACES = 10
"""Told of a text that occurs more than once."""


class EditFailed(Exception):
    """The message is for the policy."""


class Changes:
    """The edits of one session, newest last; the oldest are forgotten."""

    def __init__(self) -> None:
        # (file, text before or None where there was no file, text after)
        self._changes: list[tuple[str, str | None, str]] = []

    def apply(
        self, command: str, request: Mapping[str, Any], path: str, file: str, text: str
    ) -> tuple[str | None, str]:
        """The new text of a file, None if the file is to be removed, and what the policy reads.

        `path`: as the policy wrote it. `file`: the real path. `text`: the file's text, "" for
        `create`. The caller stores the text, then says so by `stored`. Raises EditFailed.
        """
        if command == "view":
            return text, shown(text, request.get("view_range"))
        if command == "create":
            return request["file_text"], f"{path} was created."
        if command == "undo":
            return self._text_before(path, file, text), f"The last edit of {path} was undone."
        if command == "str_replace":
            changed, around = replaced(text, path, request["old_str"], request["new_str"])
        else:
            changed, around = inserted(text, request["insert_line"], request["new_str"])
        return changed, f"{path} was changed:\n{around}"

    def stored(self, command: str, file: str, before: str, after: str | None) -> None:
        """The result of `apply` is on disk."""
        if command == "undo":
            del self._changes[self._last(file)]
            return
        self._changes.append((file, None if command == "create" else before, after or ""))
        held = sum(len(before or "") + len(after) for _, before, after in self._changes)
        while held > _HISTORY and len(self._changes) > 1:
            _, oldest, newer = self._changes.pop(0)
            held -= len(oldest or "") + len(newer)

    def _text_before(self, path: str, file: str, text: str) -> str | None:
        position = self._last(file)
        if position < 0:
            raise EditFailed(f"{path} has no edit to undo")
        _, before, after = self._changes[position]
        if text != after:
            raise EditFailed(f"{path} has changed since its last edit: nothing was undone")
        return before

    def _last(self, file: str) -> int:
        """Position of the file's last edit, -1 without one."""
        return max((at for at, one in enumerate(self._changes) if one[0] == file), default=-1)


class _Lines:
    """A text with LF as line end, and the way back to the text as the file has it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._default = "\r" if "\r" in text and "\n" not in text else "\n"
        self._crlf: list[int] = []
        """Positions in `plain` of the line ends that are CRLF in the file."""
        self.plain = self.with_lf(text)
        if len(self.plain) < len(text):
            self._crlf = [
                found.start() - before for before, found in enumerate(re.finditer("\r\n", text))
            ]

    def with_lf(self, text: str) -> str:
        """`text` with LF as line end, read as this file is."""
        text = text.replace("\r\n", "\n")
        return text.replace("\r", "\n") if self._default == "\r" else text

    @property
    def count(self) -> int:
        return self.plain.count("\n") + (not self.plain.endswith("\n"))

    def start(self, line: int) -> int:
        """Position in `plain` at which the line after `line` lines starts."""
        at = 0
        for _ in range(line):
            at = self.plain.find("\n", at) + 1
            if not at:
                return len(self.plain)
        return at

    def changed(self, first: int, last: int, new: str) -> str:
        """The file's text with `new` in place of `plain[first:last]`."""
        end = self._end_near(first)
        new = self.with_lf(new).replace("\n", end)
        return self._text[: self._place(first)] + new + self._text[self._place(last) :]

    def _place(self, position: int) -> int:
        return position + bisect_left(self._crlf, position)

    def _end_near(self, position: int) -> str:
        """The first line end from `position` on, else the last one before it."""
        at = self.plain.find("\n", position)
        if at < 0:
            at = self.plain.rfind("\n", 0, position)
        number = bisect_left(self._crlf, at)
        return "\r\n" if self._crlf[number : number + 1] == [at] else self._default


def shown(text: str, lines: list[int] | None) -> str:
    """The text with line numbers; `lines`: first and last, from 1, -1 = to the end."""
    whole = _Lines(text)
    first, last = lines or (1, -1)
    last = whole.count if last == -1 else last
    if not 1 <= first <= max(whole.count, 1) or (lines and not first <= last):
        raise EditFailed(f"view_range {lines}: the file has {whole.count} lines")
    return _numbered(whole.plain, first, last)


def replaced(text: str, path: str, old: str, new: str) -> tuple[str, str]:
    """The text with `new` in place of `old`, which occurs once, and what is shown of it."""
    if not old:
        raise EditFailed("old_str is empty")
    lines = _Lines(text)
    plain, old = lines.plain, lines.with_lf(old)
    at = plain.find(old)
    if at < 0:
        raise EditFailed(f"old_str does not occur in {path}: it has to match exactly")
    places = [plain.count("\n", 0, at) + 1]
    again = plain.find(old, at + 1)
    while again >= 0 and len(places) < _PLACES:
        places.append(plain.count("\n", 0, again) + 1)
        again = plain.find(old, again + 1)
    if len(places) > 1:
        where = ", ".join(map(str, places))
        raise EditFailed(f"old_str occurs in lines {where} of {path}: give more text around it")
    changed = lines.changed(at, at + len(old), new)
    return changed, _around(changed, places[0], new.count("\n"))


def inserted(text: str, line: int, new: str) -> tuple[str, str]:
    """The text with `new` after `line`, and what is shown of it."""
    lines = _Lines(text)
    if not 0 <= line <= lines.count:
        raise EditFailed(f"insert_line {line}: the file has {lines.count} lines")
    new = lines.with_lf(new).removesuffix("\n")
    at = lines.start(line)
    unfinished = line == lines.count and not lines.plain.endswith("\n")
    changed = lines.changed(at, at, f"\n{new}" if unfinished else f"{new}\n")
    return changed, _around(changed, line + 1, new.count("\n"))


def _numbered(plain: str, first: int, last: int) -> str:
    lines = plain.split("\n")
    if plain.endswith("\n"):
        lines.pop()
    return "\n".join(f"{at:6}\t{line}" for at, line in enumerate(lines[first - 1 : last], first))


def _around(text: str, line: int, more: int) -> str:
    return _numbered(_Lines(text).plain, max(1, line - _AROUND), line + more + _AROUND)
