"""Token ids to text, piece by piece. Pure but for the tokenizer.

The joined pieces are the text of all ids. A piece ends at a whole character. The work is linear in
the number of ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_BROKEN = "\ufffd"
_MOST_HELD = 16
"""Ids that may wait for the rest of a character; no character has more bytes."""


class Decoder(Protocol):
    """The part of a tokenizer that reads ids."""

    def decode(self, token_ids: Sequence[int]) -> str: ...


class TextStream:
    """The text of one completion while its ids arrive."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._window: list[int] = []
        """Ids whose text is out, and ids whose text is not."""
        self._out = 0
        """Number of the former."""
        self._shown = ""
        """Text of the former."""

    def feed(self, token_ids: Sequence[int]) -> str:
        """The text that is certain after these ids."""
        self._window += token_ids
        text = self._decoder.decode(self._window)
        waiting = len(self._window) - self._out
        if text.endswith(_BROKEN) and waiting < _MOST_HELD:
            return ""
        return self._advance(text)

    def end(self) -> str:
        """The rest. A character that never became whole is U+FFFD."""
        return self._advance(self._decoder.decode(self._window)) if self._window else ""

    def _advance(self, text: str) -> str:
        new = text[len(self._shown) :]
        # Known ids stay in the window: some tokenizers write a first token without its blank.
        self._window = self._window[-_MOST_HELD:]
        self._out = len(self._window)
        self._shown = self._decoder.decode(self._window)
        return new
