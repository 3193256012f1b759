"""The size of an image from its header, and whether samplers take that size. Pure.

A sampler opens an image with Pillow, which refuses decompression bombs, and its processor refuses
very long images. Finding both here saves the request. Only headers are read: an image with
truncated pixels passes, and the sampler refuses it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from engine.core.images.media import kind_of

MOST_PIXELS = (1 << 30) // 4 // 3
"""Pillow's `Image.MAX_IMAGE_PIXELS`, above which it suspects a decompression bomb."""
MOST_RATIO = 200
"""Largest ratio of the sides, from `smart_resize` of Qwen's image processors."""
MOST_SEGMENTS = 1024
"""Most segments of a JPEG before its frame; a colour profile may take 255."""

Size = tuple[int, int]
"""(width, height) in pixels."""


class UnfitImage(ValueError):
    """An image that no sampler takes."""


def check_picture(data: bytes) -> None:
    """Raises UnfitImage for bytes that are not an image, and for one that is too large or
    narrow."""
    read = _SIZES.get(kind_of(data) or "")
    if read is None:
        raise UnfitImage("not a PNG, JPEG, GIF, WebP or BMP image")
    try:
        width, height = read(data)
    except (struct.error, IndexError) as error:
        raise UnfitImage("an image without a whole header") from error
    if min(width, height) < 1:
        raise UnfitImage(f"an image of {width} x {height} pixels")
    if width * height > MOST_PIXELS:
        raise UnfitImage(f"an image of {width} x {height} pixels; the most is {MOST_PIXELS}")
    if max(width, height) > MOST_RATIO * min(width, height):
        raise UnfitImage(
            f"an image of {width} x {height} pixels; the longer side may be {MOST_RATIO} times "
            "the shorter"
        )


def _png(data: bytes) -> Size:
    """IHDR comes first (ISO/IEC 15948, 11.2.2)."""
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _jpeg(data: bytes) -> Size:
    """The size in the first frame header, SOF0 to SOF15 (ITU-T T.81, B.2.2)."""
    at = 2
    for _ in range(MOST_SEGMENTS):
        mark, marker, length = struct.unpack_from(">BBH", data, at)
        if mark != 0xFF:
            break
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + length
    raise IndexError("no frame header")


def _gif(data: bytes) -> Size:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _webp(data: bytes) -> Size:
    """The size in the first chunk: lossy, lossless or extended (RFC 9649, 2.5-2.7)."""
    kind = data[12:16]
    if kind == b"VP8X":
        low, high, low_, high_ = struct.unpack_from("<HBHB", data, 24)
        return (low | high << 16) + 1, (low_ | high_ << 16) + 1
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


def _bmp(data: bytes) -> Size:
    """A negative height means rows from the top."""
    (header,) = struct.unpack_from("<I", data, 14)
    width, height = struct.unpack_from("<HH" if header == 12 else "<ii", data, 18)
    return width, abs(height)


_SIZES: dict[str, Callable[[bytes], Size]] = {
    "image/png": _png,
    "image/jpeg": _jpeg,
    "image/gif": _gif,
    "image/webp": _webp,
    "image/bmp": _bmp,
}
