"""How an image file becomes pixels: upright, three colours of 8 bits, nothing transparent.

Owns what a viewer shows of a file: its EXIF orientation is applied, 16 bits are scaled to 8, and
what is transparent lies on white. The engine makes every image of a task `plain_file` before it
gets a name. So the policy, the tools and the learner work on the same pixels. Samplers and the
learner convert with Pillow alone, which turns nothing and cuts 16 bits at 255.

Needs Pillow (extra `image`). Importing this decodes nothing.
"""

from __future__ import annotations

import io

from PIL import ExifTags, Image, ImageOps

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
"""Files that are opened; Pillow knows many more."""
MOST_PIXELS = (1 << 30) // 4 // 3
"""Pixels of one image above which `plain_file` decodes nothing: Pillow's own limit."""
QUALITY = 92
"""Quality of a rewritten JPEG. Its chroma stays whole, or small coloured letters would be lost."""
_SIXTEEN_BITS = ("I;16", "I;16B", "I;16L", "I;16N")
_ORIENTATION_MARKS = (b"eXIf", b"exif", b"Exif", b"EXIF", b"XML:com.adobe.xmp", b"tiff:Orientation")
"""One of these stands in every file with an orientation."""


class BrokenImage(ValueError):
    """A file whose header names an image and whose pixels cannot be read."""


def orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 is upright, 5 to 8 exchange width and height.

    For a PNG whose orientation follows its pixels, Pillow decodes the pixels.
    """
    found = image.getexif().get(ExifTags.Base.Orientation, 1)
    return found if found in range(1, 9) else 1


def upright(image: Image.Image) -> Image.Image:
    """The image turned as its EXIF orientation says."""
    return ImageOps.exif_transpose(image)


def plain(image: Image.Image) -> Image.Image:
    """Three colours of 8 bits (mode RGB), with what was transparent laid on white."""
    if image.mode in _SIXTEEN_BITS:
        # Pillow's own conversion cuts at 255 instead of scaling.
        image = image.convert("I").point(lambda value: value / 256).convert("L")
    if image.has_transparency_data:
        coloured = image.convert("RGBA")
        white = Image.new("RGBA", coloured.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, coloured)
    return image.convert("RGB")


def plain_file(data: bytes) -> bytes:
    """The file itself where Pillow's plain conversion shows what a viewer shows; else a JPEG of a
    JPEG and a PNG of any other, upright and plain.

    A file that is not an image, or has more than MOST_PIXELS, comes back as it is: no sampler takes
    it. Raises BrokenImage if the pixels that must be changed cannot be read. The decoders of
    FORMATS see foreign bytes in this process: call it in a thread.
    """
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return data
    with image:
        if image.width * image.height > MOST_PIXELS:
            return data
        try:
            turned = any(mark in data for mark in _ORIENTATION_MARKS) and orientation(image) != 1
            if not (turned or image.mode in _SIXTEEN_BITS or _shows_what_is_behind(image)):
                return data
            return _written(plain(upright(image)), image.format)
        except MemoryError:
            raise
        except Exception as error:  # a broken file leads Pillow to any of them
            raise BrokenImage(f"the pixels of a {image.format} cannot be read: {error}") from error


def _shows_what_is_behind(image: Image.Image) -> bool:
    """Whether a pixel is not opaque. Many screenshots have an alpha channel that says nothing."""
    if not image.has_transparency_data:
        return False
    least, _ = image.convert("RGBA").getchannel("A").getextrema()
    return least != 255


def _written(image: Image.Image, of: str | None) -> bytes:
    out = io.BytesIO()
    if of == "JPEG":
        image.save(out, "JPEG", quality=QUALITY, subsampling=0)
    else:
        image.save(out, "PNG")
    return out.getvalue()
