"""An image's size from its header, as Pillow reads it, and what no sampler takes."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from engine.core.images.picture import MOST_PIXELS, UnfitImage, check_picture


def image(width: int, height: int, kind: str, mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.new(mode, (width, height)).save(out, kind, **options)
    return out.getvalue()


def png_of(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)


KINDS: dict[str, dict[str, Any]] = {
    "png": {"kind": "PNG"},
    "jpeg": {"kind": "JPEG"},
    "progressive": {"kind": "JPEG", "progressive": True, "comment": b"\xff\xc0" * 900},
    "gif": {"kind": "GIF"},
    "lossy": {"kind": "WEBP"},
    "lossless": {"kind": "WEBP", "lossless": True},
    "extended": {"kind": "WEBP", "exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"},
    "bmp": {"kind": "BMP"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_is_read_from_every_kind(kind: str) -> None:
    """A line is refused with its size, which shows what was read."""
    check_picture(image(300, 200, **KINDS[kind]))
    for width, height in ((603, 3), (2, 402)):
        narrow = image(width, height, **KINDS[kind])
        with pytest.raises(UnfitImage, match=f"^an image of {width} x {height} pixels; the longer"):
            check_picture(narrow)


def test_a_bitmap_may_begin_at_the_top() -> None:
    data = bytearray(image(3, 2, "BMP"))
    struct.pack_into("<i", data, 22, -2)
    check_picture(bytes(data))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (png_of(20_000, 20_000), f"20000 x 20000 pixels; the most is {MOST_PIXELS}"),
        (png_of(0, 5), "0 x 5 pixels"),
        (png_of(5, 5)[:20], "without a whole header"),
        (b"\xff\xd8" + b"\xff\xe0\0\2" * 5000, "without a whole header"),
        (b"\xff\xd8\xff\xe0\0\2text", "without a whole header"),
        (b"<svg/>", "not a PNG, JPEG"),
        (b"\0\0\0\x18ftypmp42", "not a PNG, JPEG"),
    ],
)
def test_what_no_sampler_takes_says_why(data: bytes, says: str) -> None:
    with pytest.raises(UnfitImage, match=says):
        check_picture(data)


@given(st.sampled_from(sorted(KINDS)), st.integers(0, 80), st.binary(max_size=40))
def test_broken_headers_are_named_so(kind: str, whole: int, rest: bytes) -> None:
    try:
        check_picture(image(30, 20, **KINDS[kind])[:whole] + rest)
    except UnfitImage as error:
        assert "image" in str(error) or "no PNG" in str(error)
