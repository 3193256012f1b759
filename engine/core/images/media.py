"""Media of tasks and observations: bytes under the hash that names them everywhere else.

A trajectory holds references. The bytes of a task's media go to the tool services that want them;
those of the images that the policy is shown go into the journal, once each however many
trajectories refer to them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from toolwright.types import BlobRef

MOST_BYTES = 64 << 20
"""Bytes of one image, video or recording; tool services take no larger blobs."""

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
    """A blob and what it names."""

    blob: BlobRef
    data: bytes = field(repr=False)


def blob_of(part: Media | BlobRef) -> BlobRef:
    """What names media that are here, or that their service still holds."""
    return part.blob if isinstance(part, Media) else part


def read_media(source: Source) -> Media:
    """The content of a file or of a row; an image as a viewer shows it, upright and without
    transparency (`toolwright.reading.pixels`).

    Raises ValueError if the file cannot be read, is too large, or is not of a known kind.
    """
    if isinstance(source, bytes):
        name, data = "the bytes of an image", source
    else:
        name = str(source)
        try:
            if source.is_file() and source.stat().st_size > MOST_BYTES:
                raise ValueError(
                    f"{name}: {source.stat().st_size} bytes; the limit is {MOST_BYTES}"
                )
            data = source.read_bytes()
        except OSError as error:
            raise ValueError(f"{name} cannot be read: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise ValueError(f"{name}: {len(data)} bytes; the limit is {MOST_BYTES}")
    kind = kind_of(data)
    if kind is None:
        raise ValueError(
            f"{name}: no PNG, JPEG, GIF, WebP, BMP, MP4, WebM or WAV; convert it to one"
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
            f"{name}: {len(plain)} bytes once it is upright and opaque; the limit is {MOST_BYTES}"
        )
    return plain


def kind_of(data: bytes) -> str | None:
    """The media type that the first bytes tell; None for one that is not known."""
    kinds = (kind for at, mark, kind in _SIGNATURES if data[at : at + len(mark)] == mark)
    return next(kinds, None)


def media_of(data: bytes, media_type: str) -> Media:
    """Bytes of a known kind, named by their hash."""
    digest = hashlib.sha256(data).hexdigest()
    return Media(blob=BlobRef(sha256=digest, media_type=media_type, size=len(data)), data=data)
