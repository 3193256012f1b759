"""What the scripted sampler makes of image_data, and what it refuses."""

from __future__ import annotations

import base64

import pytest

from bench.scripted import RequestError
from bench.scripted.body import read_request
from bench.scripted.images import image_tokens, read_images
from bench.scripted.types import GenerateRequest

PNG, JPEG = b"\x89PNG\r\n\x1a\n one", b"\xff\xd8\xff two"
PLACE = 9


def uri(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def request(
    ids: list[int], image_data: object, *, image_token: int | None = PLACE, room: int = 50
) -> GenerateRequest:
    return read_request(
        {"input_ids": ids, "image_data": image_data, "sampling_params": {"max_new_tokens": 8}},
        new_rid="r",
        context_length=room,
        vocab_size=None,
        image_token=image_token,
    )


def test_the_context_counts_expanded_tokens() -> None:
    with pytest.raises(RequestError, match="exceeds the model's maximum context length"):
        request([1, PLACE], [uri(PNG)], room=8 + 1 + image_tokens(PNG) - 1)


@pytest.mark.parametrize(
    ("item", "says"),
    [
        (7, "no data URI"),
        ("http://127.0.0.1/a.png", "no data URI"),
        ("data:text/plain;base64,AAAA", "no data URI"),
        ("data:image/png;base64,?", "not base64"),
        (uri(b"text"), "no PNG, JPEG, GIF, WebP or BMP"),
    ],
)
def test_what_is_no_image_is_refused(item: object, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        read_images([item])
    assert read_images(uri(PNG)) == (PNG,)
