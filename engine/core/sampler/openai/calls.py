"""Pieces of a message's tool calls to whole calls. Pure.

Servers agree neither on the index nor on the id nor on how often a name comes. So a piece belongs
to the call of its index with its id. A piece with a name begins another call if its id is another
one. It also does so if the arguments of the call before are whole.

Invariants
- A message has at most `MOST_CALLS` calls.
- Whether arguments are whole is found by one pass over them, however many pieces they have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from toolwright.model_api.deltas import CallPart, joined
from toolwright.model_api.errors import WireError

MOST_CALLS = 256
LONGEST_NAME = 1000
"""Characters of a call's name."""
_BRACKETS = re.compile(r'[{}\[\]"\\]')


@dataclass(slots=True)
class _Call:
    index: int
    id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    size: int = 0
    """Characters of the arguments."""
    _scanned: int = 0
    _depth: int = 0
    _in_string: bool = False
    _skip: bool = False
    _closed: bool = False

    def write(self, arguments: str) -> None:
        """Adds a piece. Some servers open with an empty object: what follows replaces it."""
        if self.arguments == ["{}"]:
            self.arguments.clear()
            self.size = self._scanned = 0
            self._closed = False
        self.arguments.append(arguments)
        self.size += len(arguments)

    def repeats(self, part: CallPart) -> bool:
        """Whether the piece is the whole call once more. A comparison costs no more than the piece
        is long."""
        alike = bool(part.name) and len(part.arguments) == self.size
        return alike and part.arguments == "".join(self.arguments)

    @property
    def is_whole(self) -> bool:
        """The arguments are one closed JSON object."""
        for piece in self.arguments[self._scanned :]:
            self._scan(piece)
        self._scanned = len(self.arguments)
        return self._closed

    def _scan(self, piece: str) -> None:
        if self._skip and piece:
            piece, self._skip = piece[1:], False
        at = 0
        while (found := _BRACKETS.search(piece, at)) is not None:
            sign, at = found[0], found.end()
            if self._in_string:
                if sign == "\\":
                    self._skip = at >= len(piece)
                    at += 1
                elif sign == '"':
                    self._in_string = False
            elif sign == '"':
                self._in_string = True
            elif sign in "{[":
                self._depth += 1
            elif sign in "}]":
                self._depth -= 1
                self._closed = self._depth <= 0


class CallPieces:
    """The tool calls of one message."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._last: dict[int | None, _Call] = {}
        """By index: the call that its latest piece belongs to."""
        self._known: dict[tuple[int | None, str], _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, parts: Sequence[CallPart]) -> None:
        """Raises WireError for more than `MOST_CALLS` calls."""
        unnumbered = False
        for part in parts:
            nameless = part.index is None and not part.id
            # A list without numbers is a list of whole calls.
            call = self._call_of(part, another=nameless and unnumbered and bool(part.name))
            unnumbered = unnumbered or nameless
            if part.name != call.name and not (call.name and call.arguments):
                call.name += part.name
            if len(call.name) > LONGEST_NAME:
                raise WireError(f"a tool call's name has more than {LONGEST_NAME} characters")
            if part.arguments and not call.repeats(part):
                call.write(part.arguments)

    def whole(self) -> list[tuple[str, str]]:
        """(name, arguments as JSON text) of each call, in the order of their indices."""
        ordered = sorted(self._calls, key=lambda one: one.index)
        return [(joined(one.name), joined("".join(one.arguments)) or "{}") for one in ordered]

    def _call_of(self, part: CallPart, *, another: bool) -> _Call:
        known = self._known.get((part.index, part.id)) if part.id else None
        last = known or self._last.get(part.index)
        if last is None or another or _begins(last, part, known=known is not None):
            if len(self._calls) == MOST_CALLS:
                raise WireError(f"a message has more than {MOST_CALLS} tool calls")
            last = _Call(index=part.index or 0, id=part.id)
            self._calls.append(last)
        last.id = last.id or part.id
        if part.id and last.id == part.id:
            self._known[part.index, part.id] = last
        self._last[part.index] = last
        return last


def _begins(last: _Call, part: CallPart, *, known: bool) -> bool:
    """Whether the piece begins another call than `last`. known: its id is the one of `last`."""
    if not part.name or not last.name:
        return False
    if part.id and last.id and not known:
        return True
    if part.name != last.name:
        return bool(last.arguments)
    # What is whole cannot go on: arguments that come after it are another call's.
    return last.is_whole and (not known or bool(part.arguments and not last.repeats(part)))
