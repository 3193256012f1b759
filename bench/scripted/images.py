"""`image_data` as a server with a vision model reads it, without a look at the pictures.

Owns the reading of the data URIs and the expanded prompt. A client sends one placeholder for each
image; the server repeats it for each token of the image. Pure.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from bench.scripted.types import RequestError

_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")


def image_tokens(data: bytes) -> int:
    """Tokens of an image: 3 to 9, another number for most other images, so that a mix-up shows."""
    return 3 + sum(data) % 7


def read_images(image_data: object) -> tuple[bytes, ...]:
    """The images of a request, in order.

    Raises:
        RequestError: an item is not an image in a data URI.
    """
    if image_data is None:
        return ()
    items = image_data if isinstance(image_data, list) else [image_data]
    return tuple(_read(item, index) for index, item in enumerate(items))


def expanded(
    input_ids: Sequence[int],
    images: Sequence[bytes],
    placeholder: int,
    words: Sequence[Sequence[int]] = (),
) -> tuple[int, ...]:
    """The prompt with each image's placeholder repeated; all other ids stay.

    words: what else the server takes for the place of an image or a video, as ids.

    Raises:
        RequestError: there are not as many places as images.
    """
    if not images:
        return tuple(input_ids)
    places = input_ids.count(placeholder) + sum(
        tuple(input_ids[at : at + len(word)]) == tuple(word)
        for word in words
        for at in range(len(input_ids))
    )
    if places != len(images):
        raise RequestError(
            f"prompt has {places} image placeholder token(s) but {len(images)} image(s) were "
            "provided"
        )
    counts = map(image_tokens, images)
    return tuple(
        made
        for token in input_ids
        for made in ([token] * next(counts) if token == placeholder else [token])
    )


def _read(item: object, index: int) -> bytes:
    head, comma, body = item.partition(",") if isinstance(item, str) else ("", "", "")
    if not comma or not head.startswith("data:image/") or not head.endswith(";base64"):
        raise RequestError(
            f"image_data[{index}] is no data URI of an image; a scripted sampler opens neither "
            "files nor addresses"
        )
    try:
        data = base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise RequestError(f"image_data[{index}] is not base64: {error}") from error
    if not data.startswith(_SIGNATURES):
        raise RequestError(f"image_data[{index}] is no PNG, JPEG, GIF, WebP or BMP")
    return data
