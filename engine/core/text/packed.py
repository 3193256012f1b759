"""Ids for text whose tokenizer nobody has here: every id is up to three bytes of UTF-8. Pure.

Limits count something then, and a record holds something: a text of English has about four bytes a
token, so three of them count a third more tokens than most tokenizers would.

Invariants
- `decode(encode(text)) == text`, and so for any joined pieces of encoded text.
- An id tells its own bytes, so that no vocabulary is needed.
"""

from __future__ import annotations

from collections.abc import Iterable

BYTES_AN_ID = 3
_LENGTH_BIT = 8 * BYTES_AN_ID
VOCAB_SIZE = (BYTES_AN_ID + 1) << _LENGTH_BIT
"""Ids are below it; the largest ones have three bytes."""
NAME = "utf-8-by-three-bytes"


def encode(text: str) -> list[int]:
    """Lone surrogates, which no UTF-8 has, become question marks."""
    data = text.encode(errors="replace")
    return [
        len(piece) << _LENGTH_BIT | int.from_bytes(piece)
        for start in range(0, len(data), BYTES_AN_ID)
        if (piece := data[start : start + BYTES_AN_ID])
    ]


def decode(token_ids: Iterable[int]) -> str:
    """What was cut inside a character becomes a replacement character. ValueError for an id that
    `encode` does not make."""
    found = bytearray()
    for token in token_ids:
        size, value = token >> _LENGTH_BIT, token & ((1 << _LENGTH_BIT) - 1)
        if not 1 <= size <= BYTES_AN_ID or value >> 8 * size:
            raise ValueError(f"{token} is no id of packed bytes")
        found += value.to_bytes(size)
    return found.decode(errors="replace")
