"""Reads a JSON object that is still being written: whether it can become whole, and whether it ends
inside of a string; pure.

Invariants
- The work is linear in the text, in whatever pieces it comes, and the pieces change nothing.
- `json.loads` accepts a `complete` text, unless a number in it has more digits than Python reads.
"""

from __future__ import annotations

import json
import re
from enum import Enum, auto

_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_SPACE = re.compile(r"[ \t\n\r]*")
_WORD = re.compile(r"[-+.0-9A-Za-z]*")
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_LONGEST_WORD = 5000
"""Characters of one number. Python reads no longer integer."""
_ESCAPES = frozenset('"\\/bfnrt')
_HEX = frozenset("0123456789abcdefABCDEF")


class _Next(Enum):
    """What may come next, outside of a string."""

    OBJECT = auto()
    KEY_OR_END = auto()
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    VALUE_OR_END = auto()
    COMMA_OR_END = auto()
    NOTHING = auto()


class JsonPrefix:
    """One JSON object as its characters arrive."""

    __slots__ = ("_escape", "_next", "_stack", "_word", "broken", "inside", "settled")

    def __init__(self) -> None:
        self.inside = False
        """The text ends inside of a string."""
        self.broken = False
        """No continuation makes it JSON."""
        self.settled = False
        """A character that JSON allows followed a string. The caller may reset it."""
        self._stack: list[str] = []
        self._next = _Next.OBJECT
        self._escape = 0
        """Characters that the escape in progress still needs; 1 right after a backslash."""
        self._word: str | None = None

    @property
    def complete(self) -> bool:
        """The object has ended."""
        return self._next is _Next.NOTHING and not self.broken

    def feed(self, text: str) -> None:
        """Takes the next piece."""
        if self._next is _Next.OBJECT and self._is_whole(text):
            self._next = _Next.NOTHING
            return
        at, end = 0, len(text)
        while at < end and not self.broken:
            at = self._string(text, at) if self.inside else self._structure(text, at)

    def _is_whole(self, text: str) -> bool:
        """Most calls come in one piece: the library's parser is quicker than this one."""
        body = text.strip(" \t\n\r")
        if not (body.startswith("{") and body.endswith("}")):
            return False
        try:
            return isinstance(json.loads(body, parse_constant=_refuse), dict)
        except (ValueError, RecursionError):
            return False

    def _string(self, text: str, at: int) -> int:
        if self._escape:
            return self._escaped(text, at)
        plain = _PLAIN.match(text, at)
        at = plain.end() if plain else at
        if at == len(text):
            return at
        if text[at] == '"':
            self.inside = False
            key = self._next in (_Next.KEY, _Next.KEY_OR_END)
            self._next = _Next.COLON if key else self._after_value()
        elif text[at] == "\\":
            self._escape = 1
        else:
            self.broken = True
        return at + 1

    def _escaped(self, text: str, at: int) -> int:
        one = text[at]
        if self._escape > 1:
            self._escape -= 1
            if self._escape == 1:
                self._escape = 0
            self.broken = one not in _HEX
        elif one == "u":
            self._escape = 5
        else:
            self._escape = 0
            self.broken = one not in _ESCAPES
        return at + 1

    def _structure(self, text: str, at: int) -> int:
        if self._word is not None:
            return self._scalar(text, at)
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        if at == len(text):
            return at
        one = text[at]
        self.broken = not self._takes(one)
        self.settled = self.settled or (not self.broken and not self.inside)
        return at if self._word is not None else at + 1

    def _takes(self, one: str) -> bool:
        """Whether the character may stand here; the state is then the one after it."""
        wanted = self._next
        if wanted in (_Next.VALUE, _Next.VALUE_OR_END) or (wanted is _Next.OBJECT and one == "{"):
            return self._value(one)
        if one == '"' and wanted in (_Next.KEY, _Next.KEY_OR_END):
            self.inside = True
        elif one == ":" and wanted is _Next.COLON:
            self._next = _Next.VALUE
        elif one == "," and wanted is _Next.COMMA_OR_END:
            self._next = _Next.KEY if self._stack[-1] == "}" else _Next.VALUE
        elif wanted in (_Next.COMMA_OR_END, _Next.KEY_OR_END) and one == self._stack[-1]:
            self._stack.pop()
            self._next = self._after_value()
        else:
            return False
        return True

    def _value(self, one: str) -> bool:
        if one == '"':
            self.inside = True
            self._next = _Next.VALUE
        elif one == "{":
            self._stack.append("}")
            self._next = _Next.KEY_OR_END
        elif one == "[":
            self._stack.append("]")
            self._next = _Next.VALUE_OR_END
        elif one == "]" and self._next is _Next.VALUE_OR_END:
            self._stack.pop()
            self._next = self._after_value()
        elif _WORD.fullmatch(one):
            self._word = ""
        else:
            return False
        return True

    def _scalar(self, text: str, at: int) -> int:
        more = _WORD.match(text, at)
        end = more.end() if more else at
        self._word = (self._word or "") + text[at:end]
        if end < len(text):
            self.broken = _SCALAR.fullmatch(self._word) is None
            self._word = None
            self._next = self._after_value()
        elif len(self._word) > _LONGEST_WORD:
            self.broken = True
        return end

    def _after_value(self) -> _Next:
        return _Next.COMMA_OR_END if self._stack else _Next.NOTHING


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
