"""Media of tasks and observations: bytes with the hash that identifies them everywhere else.

A trajectory holds references. Bytes of a task's media go to the tool services that want them. Bytes
of images that the policy sees go into the journal once, however many trajectories refer to them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from toolwright.types import BlobRef

MOST_BYTES = 64 << 20
"""Largest image, video or recording, in bytes; tool services take no larger blobs."""

Source = Path | bytes
"""A file, or the content itself."""

_SIGNATURES = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"BM", "image/bmp"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1a\x45\xdf\xa3", "video/webm"),
    (8, b"WAVE", "audio/wav"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """A blob's reference and its bytes."""

    blob: BlobRef
    data: bytes = field(repr=False)


def blob_of(part: Media | BlobRef) -> BlobRef:
    """The reference of media that are here, or that their service still holds."""
    return part.blob if isinstance(part, Media) else part


def read_media(source: Source) -> Media:
    """Reads a file or the bytes of a row. Images become upright and opaque
    (`toolwright.reading.pixels`).

    Raises ValueError if the file cannot be read, is too large, or is not of a known kind.
    """
    if isinstance(source, bytes):
        name, data = "the bytes of an image", source
    else:
        name = str(source)
        try:
            if source.is_file() and source.stat().st_size > MOST_BYTES:
                raise ValueError(
                    f"{name} has {source.stat().st_size} bytes, more than {MOST_BYTES}: make it "
                    "smaller"
                )
            data = source.read_bytes()
        except OSError as error:
            raise ValueError(f"{name} cannot be read: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise ValueError(f"{name} has {len(data)} bytes, more than {MOST_BYTES}: make it smaller")
    kind = kind_of(data)
    if kind is None:
        raise ValueError(
            f"{name} is not PNG, JPEG, GIF, WebP, BMP, MP4, WebM or WAV: convert it to one"
        )
    if kind.startswith("image/"):
        data = _plain(data, name)
        kind = kind_of(data) or kind
    return media_of(data, kind)


def _plain(data: bytes, name: str) -> bytes:
    from toolwright.reading.pixels import BrokenImage, plain_file  # Pillow: for images alone

    try:
        plain = plain_file(data)
    except BrokenImage as error:
        raise ValueError(f"{name}: {error}") from error
    if len(plain) > MOST_BYTES:
        raise ValueError(
            f"{name} has {len(plain)} bytes once it is upright and opaque, more than {MOST_BYTES}: "
            "make it smaller"
        )
    return plain


def kind_of(data: bytes) -> str | None:
    """The media type by the first bytes; None if unknown."""
    kinds = (kind for at, mark, kind in _SIGNATURES if data[at : at + len(mark)] == mark)
    return next(kinds, None)


def media_of(data: bytes, media_type: str) -> Media:
    """Media from bytes of a known type."""
    digest = hashlib.sha256(data).hexdigest()
    return Media(blob=BlobRef(sha256=digest, media_type=media_type, size=len(data)), data=data)
