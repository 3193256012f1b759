"""Text that others wrote, on its way through a chat template: it spells no control token; pure.

A template writes control tokens beside the text of tools and tasks, and one encoding makes ids of
both. So what would be read as a control token in foreign text is replaced by sentinels before the
template is rendered, and is put back into what was rendered.

Invariants
- No string that `guard` returns holds a spelling, nor does one of them with what stands before or
  after it, unless it lies wholly inside of the spelling.
- `pieces(guard(text))` put together are the text, whatever characters it holds.
- A text that spells nothing is returned as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

_MARK = "toolwright-spelling-"
"""Leads a sentinel, and becomes one where foreign text holds it. All of it is plain ASCII: a
template may write a text as JSON or as Python does, and neither changes that."""


class OwnText(str):
    """Text of the recipe among messages: its control tokens are meant."""

    __slots__ = ()


class Guard:
    """Sentinels for the spellings of one tokenizer's control tokens."""

    def __init__(self, spellings: Iterable[str]) -> None:
        known = sorted(filter(None, set(spellings)), key=len, reverse=True)
        self._spelled = re.compile("|".join(re.escape(text) for text in (*known, _MARK)))
        self._beginnings = _parts(known, lambda text, size: text[:size])
        self._endings = _parts(known, lambda text, size: text[-size:])
        # Where a text's end holds no first letter of a spelling, it is no beginning of one.
        self._firsts = frozenset(spelling[0] for spelling in known)
        self._lasts = frozenset(spelling[-1] for spelling in known)
        self._longest = max(map(len, known), default=1)
        self._literals = tuple(dict.fromkeys((*known, _MARK, *self._beginnings, *self._endings)))
        self._numbers = {literal: number for number, literal in enumerate(self._literals)}
        self._sentinel = re.compile(rf"{_MARK}([0-9]{{1,6}});")

    def guard(self, text: str) -> str:
        """The text, with sentinels where it spells a control token, and where it begins with the
        end of one or ends with the beginning: its neighbour could complete it."""
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
        """The same of all texts inside JSON-like data, keys included."""
        if isinstance(value, str):
            return self.guard(value)
        if isinstance(value, Mapping):
            return {self.guard_all(key): self.guard_all(one) for key, one in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return [self.guard_all(one) for one in value]
        return value

    def pieces(self, rendered: str) -> Iterator[tuple[bool, str]]:
        """(it is foreign, the text): what stood in place of sentinels, and what stands between."""
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
