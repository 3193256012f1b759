"""Images by Pillow: from a file to a result.

Invariants
- A file is decoded only after its header named a format of FORMATS and a size within the limit.
- A box is in pixels of the image as a viewer shows it: its EXIF orientation is applied first.
- Results have three colours and nothing else: no transparency (it is laid on white), no metadata.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from PIL import ExifTags, Image, UnidentifiedImageError

from toolsvc.tools.image.arguments import CROPS, Function, ImageArguments
from toolsvc.tools.image.boxes import box_in, fitted, resized
from toolsvc.tools.image.types import Encoding, ImageFault, ImageLimits, Picture, Size, UnusableFile
from toolwright.reading.pixels import FORMATS, QUALITY, orientation, plain, upright

_LOSSLESS = ("PNG", "GIF", "BMP")

# Above the limit Pillow warns, above twice the limit it raises: both refuse.
warnings.simplefilter("error", Image.DecompressionBombWarning)


def work_on_picture(arguments: ImageArguments, file: BinaryIO, limits: ImageLimits) -> Picture:
    """One function's result. Raises UnusableFile."""
    with _opened(file, limits) as image:
        encoding = _encoding(image, limits.encoding)
        plan = _Plan(arguments, _shown_size(image, limits), limits)
        with _blaming_the_file(limits):
            turned = upright(image)
        return encoded(plan.carried_out(turned), encoding)


class _Plan:
    """What is to be done to an image of a known size; made before it is decoded, since what does
    not fit need not be decoded."""

    def __init__(self, arguments: ImageArguments, size: Size, limits: ImageLimits) -> None:
        self._function = arguments.function
        self._angle = arguments.angle or 0.0
        self._long_side = limits.long_side
        self._box = None
        if arguments.function in CROPS:
            self._box = box_in(
                size,
                arguments.bbox_2d or (),
                normalized=arguments.normalized,
                padding=limits.padding,
            )
            size = self._box.size
        if arguments.function is Function.RESIZE_IMAGE:
            self._size = resized(size, arguments.width, arguments.height, limits.long_side)
        else:
            self._size = fitted(size, limits.long_side)

    def carried_out(self, image: Image.Image) -> Image.Image:
        if self._box is not None:
            image = image.crop(self._box)
        image = plain(image)
        if image.size != self._size:
            image = image.resize(self._size, Image.Resampling.LANCZOS)
        if self._function is Function.ROTATE_IMAGE:
            image = image.rotate(
                -self._angle, Image.Resampling.BICUBIC, expand=True, fillcolor=(255, 255, 255)
            )
            size = fitted(image.size, self._long_side)
            image = image if image.size == size else image.resize(size, Image.Resampling.LANCZOS)
        return image


def encoded(image: Image.Image, encoding: str, note: str = "") -> Picture:
    """`encoding`: "PNG" or "JPEG"."""
    out = io.BytesIO()
    if encoding == "PNG":
        image.save(out, "PNG")
    else:
        image.save(out, "JPEG", quality=QUALITY, subsampling=0)
    return Picture(
        data=out.getvalue(), media_type=f"image/{encoding.lower()}", size=image.size, note=note
    )


def rehearse(limits: ImageLimits) -> None:
    """Uses every part once, so that nothing is left to be imported when no file can be opened any
    more. Raises OSError if this Pillow lacks a format."""
    image = Image.new("RGBA", (40, 40), (200, 100, 50, 128))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    for kind in FORMATS:
        out = io.BytesIO()
        how = {"exif": exif} if kind in ("PNG", "JPEG", "WEBP") else {}
        image.convert("RGB" if kind == "JPEG" else "RGBA").save(out, kind, **how)
        out.seek(0)
        work_on_picture(ImageArguments(function=Function.ROTATE_IMAGE, angle=10), out, limits)


def _opened(file: BinaryIO, limits: ImageLimits) -> Image.Image:
    """The header alone has been read."""
    if file.seek(0, os.SEEK_END) > limits.file_bytes:
        raise UnusableFile(
            ImageFault.LIMIT, f"the image's file has more than {limits.file_bytes} bytes"
        )
    file.seek(0)
    Image.MAX_IMAGE_PIXELS = limits.pixels
    with _blaming_the_file(limits):
        return Image.open(file, formats=FORMATS)


@contextmanager
def _blaming_the_file(limits: ImageLimits) -> Iterator[None]:
    """Pillow at work: whatever it raises is the file's fault, want of memory apart."""
    try:
        yield
    except MemoryError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnusableFile(
            ImageFault.LIMIT, f"the image has more than {limits.pixels} pixels"
        ) from error
    except UnidentifiedImageError as error:
        raise UnusableFile(
            ImageFault.FILE, f"the file is no image that can be read: {', '.join(FORMATS)}"
        ) from error
    except Exception as error:  # a broken file leads Pillow to any of them
        raise UnusableFile(ImageFault.FILE, f"the image's file is broken: {error}") from error


def _shown_size(image: Image.Image, limits: ImageLimits) -> Size:
    """Size as a viewer shows it: turned by a quarter if the EXIF orientation says so. (Of a PNG it
    stands behind the pixels, so that Pillow decodes them to see it.)"""
    with _blaming_the_file(limits):
        turned = orientation(image) >= 5
    width, height = image.size
    return (height, width) if turned else (width, height)


def _encoding(image: Image.Image, wanted: Encoding) -> str:
    if wanted != "auto":
        return wanted.upper()
    return "PNG" if image.format in _LOSSLESS else "JPEG"
