"""Computes the part to cut, the size of a result, and the frames of a video; pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from typing import NamedTuple

from toolsvc.tools.image.types import SHORT_SIDE, ImageFault, Size, UnusableFile

PADDING_PIXELS = 600
"""The padding's bound: VerlTool's."""


class PixelBox(NamedTuple):
    """Whole pixels, half-open, as Pillow counts."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def size(self) -> Size:
        return self.right - self.left, self.bottom - self.top


def box_in(size: Size, bbox: Sequence[float], *, normalized: bool, padding: float) -> PixelBox:
    """The pixels of an ordered `bbox` (left, top, right, bottom) with its padding, which ends at
    the image's edges: verl-tool, pixel_reasoner.py. Raises UnusableFile if the bbox leaves the
    image."""
    width, height = size
    left, top, right, bottom = bbox
    if normalized:
        left, top, right, bottom = left * width, top * height, right * width, bottom * height
    if right > width or bottom > height:
        raise UnusableFile(
            ImageFault.REQUEST,
            f"the box {list(bbox)} is not inside the image, which is {width} x {height} pixels",
        )
    across = min(padding * width, PADDING_PIXELS)
    down = min(padding * height, PADDING_PIXELS)
    # An image's last pixel is in a box that begins on its edge by a rounding error.
    first_x, first_y = min(floor(left), width - 1), min(floor(top), height - 1)
    return PixelBox(
        left=max(0, min(first_x, floor(left - across))),
        top=max(0, min(first_y, floor(top - down))),
        right=min(width, max(first_x + 1, ceil(right + across))),
        bottom=min(height, max(first_y + 1, ceil(bottom + down))),
    )


def fitted(size: Size, long_side: int) -> Size:
    """The size that a picture of `size` is shown in: its longer side at most `long_side`, its
    shorter one at least SHORT_SIDE, the ratio as it was. Raises UnusableFile if it is too
    narrow."""
    longer, shorter = max(size), min(size)
    scale = min(1.0, long_side / longer)
    if shorter * scale < SHORT_SIDE:
        scale = SHORT_SIDE / shorter
        if longer * scale > long_side:
            raise UnusableFile(
                ImageFault.REQUEST,
                f"{size[0]} x {size[1]} pixels are too narrow: at most "
                f"{long_side // SHORT_SIDE} times as long as wide",
            )
    width, height = (min(long_side, max(SHORT_SIDE, round(side * scale))) for side in size)
    return width, height


def resized(size: Size, width: int | None, height: int | None, long_side: int) -> Size:
    """The size that was asked for; a side that was left out keeps the ratio. Raises UnusableFile if
    it is no size of a result."""
    if width is None:
        width = round(size[0] * (height or 0) / size[1])
    if height is None:
        height = round(size[1] * width / size[0])
    if min(width, height) < SHORT_SIDE or max(width, height) > long_side:
        raise UnusableFile(
            ImageFault.REQUEST,
            f"{width} x {height} pixels: each side must have from {SHORT_SIDE} to {long_side}",
        )
    return width, height


def evenly(total: int, wanted: int) -> list[int]:
    """`wanted` of `total` things, from 0, the first and the last among them; all where there are
    no more: how qwen-vl-utils samples a video's frames."""
    if total <= wanted:
        return list(range(total))
    if wanted == 1:
        return [0]
    return [round(place * (total - 1) / (wanted - 1)) for place in range(wanted)]
