"""Token ids to text, piece by piece. Pure but for the tokenizer.

The joined pieces are the text of all ids. A piece ends at a whole character. The work is linear in
the number of ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_BROKEN = "\ufffd"
_MOST_WAITING = 3
"""Ids of an unfinished character: a character has 4 bytes at most."""
_KNOWN = 16
"""Ids that are decoded again: some tokenizers write a first token without its blank."""


class Decoder(Protocol):
    """The part of a tokenizer that reads ids."""

    def decode(self, token_ids: Sequence[int]) -> str: ...


class TextStream:
    """The text of one completion while its ids arrive."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._known: list[int] = []
        """The last ids whose text is out."""
        self._shown = ""
        """Their text."""
        self._waiting: list[int] = []

    def feed(self, token_ids: Sequence[int]) -> str:
        """The text that is certain after these ids."""
        window = [*self._known, *self._waiting, *token_ids]
        for size in range(min(_MOST_WAITING, len(window) - len(self._known)) + 1):
            ready = window[: len(window) - size]
            text = self._decoder.decode(ready)
            if not text.endswith(_BROKEN):
                return self._advance(ready, text, window[len(ready) :])
        # The model itself wrote bytes that are no character.
        return self._advance(window, self._decoder.decode(window), [])

    def end(self) -> str:
        """The rest. A character that never became whole is U+FFFD."""
        window = [*self._known, *self._waiting]
        return self._advance(window, self._decoder.decode(window), [])

    def _advance(self, ready: list[int], text: str, waiting: list[int]) -> str:
        new = text[len(self._shown) :]
        self._known = ready[-_KNOWN:]
        self._shown = self._decoder.decode(self._known)
        self._waiting = waiting
        return new
