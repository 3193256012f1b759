"""Images in a row of tokens, and the rotary positions that such a row has.

A record holds an image as a run of placeholders, one a merged patch of the image, row by row.
M-RoPE (Qwen2-VL; Wang et al. 2024, section 2.1) gives every token three positions: time, height and
width. Those of a text token are one number that counts on. The tokens of an image share their time,
and have their row and column as height and width, counted from where the text stopped. The text
goes on after the largest of them, and a row of a batch begins at 0 again.

Pure, and importable without torch. Does not know what an image shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from toolwright import types as t


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A file as the policy was shown it. grid: (rows, columns) of its tokens."""

    sha256: str
    data: bytes = field(repr=False)
    grid: tuple[int, int]

    @property
    def tokens(self) -> int:
        """Placeholders that stand for it."""
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An image in a row: its placeholders begin at token `start`."""

    image: Image
    start: int

    @property
    def end(self) -> int:
        return self.start + self.image.tokens

    def moved(self, by: int) -> Shown:
        """The same where its row begins at token `by`."""
        return replace(self, start=self.start + by)


def read_images(sequence: t.Sequence) -> list[tuple[int, t.MediaRef]]:
    """(position of its first token, image) of all that the policy read before its last trainable
    token. Later ones no sampler may have opened, and nothing that is trained depends on them."""
    found: list[tuple[int, t.MediaRef]] = []
    start = end = 0
    for segment in sequence.segments:
        found += [(start + ref.token_offset, ref) for ref in segment.media]
        start += len(segment.token_ids)
        if segment.trainable and segment.token_ids:
            end = start
    return [(at, ref) for at, ref in found if at < end]


def positions(length: int, shown: Sequence[Shown]) -> np.ndarray:
    """[3, length] int64 positions: time, height, width. shown: in order, whole, apart."""
    pieces: list[np.ndarray] = []
    at = following = 0

    def text(count: int) -> None:
        pieces.append(np.broadcast_to(np.arange(following, following + count), (3, count)))

    for one in shown:
        rows, columns = one.image.grid
        text(one.start - at)
        following += one.start - at
        height, width = np.divmod(np.arange(one.image.tokens), columns)
        pieces.append(np.stack([np.zeros_like(height), height, width]) + following)
        following += max(rows, columns)
        at = one.end
    text(length - at)
    return np.concatenate(pieces, axis=1, dtype=np.int64)
