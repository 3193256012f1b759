"""Images that a policy was shown, from the journal, by the hash of their bytes.

Invariants
- What is given is a raster image by its own first bytes, whatever the record says of it: no SVG, no
  document, nothing that could be more than pixels.
- It is the blob of that hash, of MOST_BYTES at most, and of one run: no path is made of a name.
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from console.web.index.sources import JOURNAL, open_journal

MOST_BYTES = 16 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"BM"), "image/bmp"),
)


class NoImage(LookupError):
    """It is not there any more, or is nothing to be shown; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Bytes of a kind that a browser draws."""

    kind: str
    data: bytes


def image_of(folder: Path, sha256: str) -> Image:
    """The image of this name in the run's journal. NoImage."""
    if not _SHA256.fullmatch(sha256):
        raise NoImage("an image is named by 64 hexadecimal digits")
    try:
        with open_journal(folder / JOURNAL) as db:
            row = db.execute(
                "SELECT length(data), CASE WHEN length(data) <= ? THEN data END FROM blobs"
                " WHERE sha256 = ?",
                (MOST_BYTES, sha256),
            ).fetchone()
    except sqlite3.Error as error:
        raise NoImage(f"{folder / JOURNAL} cannot be read: {error}") from error
    if row is None:
        raise NoImage(
            'the journal has forgotten this image: engine.history = "all" keeps everything'
        )
    size, data = row
    if data is None:
        raise NoImage(f"an image of {size:,} bytes; {MOST_BYTES:,} is the most that is shown")
    kind = next((kind for sign, kind in _SIGNATURES if sign.match(data)), None)
    if kind is None:
        raise NoImage("these bytes are no PNG, JPEG, GIF, WebP or BMP")
    return Image(kind=kind, data=bytes(data))
