"""Ids for text without a known tokenizer: every id holds up to three bytes of UTF-8. Pure.

So limits and records work without a tokenizer. English has about four bytes in a token, so these
ids are a third more than most tokenizers would give.

Invariants
- `decode(encode(text)) == text`, also for joined pieces of encoded text.
- An id holds its own bytes, so no vocabulary is needed.
"""

from __future__ import annotations

from collections.abc import Iterable

BYTES_AN_ID = 3
_LENGTH_BIT = 8 * BYTES_AN_ID


class PackedBytes:
    """Encodes and decodes text without a vocabulary."""

    vocab_size = (BYTES_AN_ID + 1) << _LENGTH_BIT
    """Upper bound of ids; the largest ones hold three bytes."""
    hash = "utf-8-by-three-bytes"

    def encode(self, text: str) -> list[int]:
        """Ids of a text. Lone surrogates, which UTF-8 cannot hold, become question marks."""
        data = text.encode(errors="replace")
        return [
            len(piece) << _LENGTH_BIT | int.from_bytes(piece)
            for start in range(0, len(data), BYTES_AN_ID)
            if (piece := data[start : start + BYTES_AN_ID])
        ]

    encode_plain = encode

    def decode(self, token_ids: Iterable[int]) -> str:
        """Text of ids. A character that is cut becomes a replacement character.

        Raises ValueError for an id that `encode` cannot make.
        """
        found = bytearray()
        for token in token_ids:
            size, value = token >> _LENGTH_BIT, token & ((1 << _LENGTH_BIT) - 1)
            if not 1 <= size <= BYTES_AN_ID or value >> 8 * size:
                raise ValueError(f"{token} is not an id of packed bytes")
            found += value.to_bytes(size)
        return found.decode(errors="replace")
