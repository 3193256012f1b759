"""Keeps foreign text from spelling control tokens on its way through a chat template; pure.

A template writes control tokens beside the text of tools and tasks, and one encoding covers both.
So `guard` replaces spellings of control tokens in foreign text by sentinels before rendering.
`pieces` restores the text afterwards.

Invariants
- No result of `guard` holds a spelling, alone or together with its neighbours, unless it lies
  wholly inside the spelling.
- The joined `pieces(guard(text))` are the text, whatever characters it holds.
- A text without spellings is returned unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

_MARK = "toolwright-spelling-"
"""Prefix of a sentinel; foreign text with it gets a sentinel too. It is plain ASCII, so a template
that writes text as JSON or as a Python literal does not change it."""


class OwnText(str):
    """Text of the recipe among messages: its control tokens stay control tokens."""

    __slots__ = ()


class Guard:
    """Sentinels for the spellings of one tokenizer's control tokens."""

    def __init__(self, spellings: Iterable[str]) -> None:
        known = sorted(filter(None, set(spellings)), key=len, reverse=True)
        self._spelled = re.compile("|".join(re.escape(text) for text in (*known, _MARK)))
        self._beginnings = _parts(known, lambda text, size: text[:size])
        self._endings = _parts(known, lambda text, size: text[-size:])
        # A text's end without any first letter of a spelling cannot begin one.
        self._firsts = frozenset(spelling[0] for spelling in known)
        self._lasts = frozenset(spelling[-1] for spelling in known)
        self._longest = max(map(len, known), default=1)
        self._literals = tuple(dict.fromkeys((*known, _MARK, *self._beginnings, *self._endings)))
        self._numbers = {literal: number for number, literal in enumerate(self._literals)}
        self._sentinel = re.compile(rf"{_MARK}([0-9]{{1,6}});")

    def guard(self, text: str) -> str:
        """The text with sentinels in place of spelled control tokens.

        The end of one at the text's beginning, or the beginning of one at its end, is replaced too:
        a neighbour could complete it.
        """
        if isinstance(text, OwnText):
            return text
        guarded = self._spelled.sub(lambda found: self._sentinel_of(found.group()), text)
        longest = self._longest
        if not self._firsts.isdisjoint(guarded[-longest:]) and guarded.endswith(self._beginnings):
            part = next(part for part in self._beginnings if guarded.endswith(part))
            guarded = guarded[: -len(part)] + self._sentinel_of(part)
        if not self._lasts.isdisjoint(guarded[:longest]) and guarded.startswith(self._endings):
            part = next(part for part in self._endings if guarded.startswith(part))
            guarded = self._sentinel_of(part) + guarded[len(part) :]
        return guarded

    def guard_all(self, value: Any) -> Any:
        """JSON-like data with all its texts guarded, keys included."""
        if isinstance(value, str):
            return self.guard(value)
        if isinstance(value, Mapping):
            return {self.guard_all(key): self.guard_all(one) for key, one in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return [self.guard_all(one) for one in value]
        return value

    def pieces(self, rendered: str) -> Iterator[tuple[bool, str]]:
        """(is foreign, text) pairs: the texts behind sentinels, and those between them."""
        for position, piece in enumerate(self._sentinel.split(rendered)):
            if position % 2:
                number = int(piece)
                known = number < len(self._literals)
                yield True, self._literals[number] if known else f"{_MARK}{piece};"
            elif piece:
                yield False, piece

    def _sentinel_of(self, literal: str) -> str:
        return f"{_MARK}{self._numbers[literal]};"


def _parts(spellings: Sequence[str], part: Any) -> tuple[str, ...]:
    """Proper parts of the spellings, the longest first."""
    found = {part(spelling, size) for spelling in spellings for size in range(1, len(spelling))}
    return tuple(sorted(found, key=len, reverse=True))
