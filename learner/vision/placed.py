"""Images in a row of tokens, and the rotary positions of such a row.

A record has an image as a run of placeholders, one for each merged patch of the image, row by row.
M-RoPE (Qwen2-VL; Wang et al. 2024, section 2.1) gives every token three positions: time, height and
width. A text token has the same number three times, one more than the token before. The tokens of
an image have one time; their height and width are row and column, counted from the end of the text.
The text continues after the largest of them. Every row of a batch begins at 0.

Pure, and importable without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from toolwright import types as t


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image file."""

    sha256: str
    data: bytes = field(repr=False)
    grid: tuple[int, int]
    """(rows, columns) of its tokens."""

    @property
    def tokens(self) -> int:
        """Number of its placeholders."""
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedImage:
    """An image in a row: its placeholders begin at token `start`."""

    image: Image
    start: int

    @property
    def end(self) -> int:
        return self.start + self.image.tokens

    def moved(self, by: int) -> PlacedImage:
        """The image if its row begins at token `by`."""
        return replace(self, start=self.start + by)


def read_images(sequence: t.Sequence) -> list[tuple[int, t.MediaRef]]:
    """(position of its first token, image) of all images before the last trainable token.

    A sampler may not have opened later images, and no target depends on them.
    """
    found: list[tuple[int, t.MediaRef]] = []
    start = end = 0
    for segment in sequence.segments:
        found += [(start + ref.token_offset, ref) for ref in segment.media]
        start += len(segment.token_ids)
        if segment.trainable and segment.token_ids:
            end = start
    return [(at, ref) for at, ref in found if at < end]


def positions(length: int, shown: Sequence[PlacedImage]) -> np.ndarray:
    """[3, length] int64 positions: time, height, width. shown: complete images in order."""
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
