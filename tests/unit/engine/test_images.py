"""Images in prompts and observations: where they stand, what cannot forge one, their sizes."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from engine.core.images.picture import MOST_PIXELS, UnfitImage, check_picture
from engine.core.images.placeholders import (
    ExpansionMismatch,
    ImagesUnplaced,
    expansions,
    fold,
    plain,
    unfold,
    with_images,
)
from engine.types import ImageMark
from toolwright.types import BlobRef, MediaRef, Task

MARK = ImageMark(text="<v><i></v>", token_ids=(7, 9, 8), placeholder=9, reserved=("<i>", "<movie>"))
IMAGE = {"type": "image"}


def ref(media_type: str = "image/png") -> MediaRef:
    blob = BlobRef(sha256="ab", media_type=media_type, size=2)
    return MediaRef(blob=blob, token_offset=0, placeholder_tokens=0)


def task(*contents: Any, images: int = 1, **changes: Any) -> Task:
    messages = tuple({"role": "user", "content": content} for content in contents)
    return Task(id="t", messages=messages, media=(ref(),) * images, **changes)


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def contents(of: Task) -> list[Any]:
    return [message["content"] for message in of.messages]


URL = {"type": "image_url", "image_url": {"url": "x"}, "text": None}
VIDEO = Task(id="t", prompt="a", media=(ref("video/mp4"),))
SYSTEM = ({"role": "system", "content": "s"}, {"role": "user", "content": "what?"})


@pytest.mark.parametrize(
    ("asked", "placed"),
    [
        (task("<image>a", "b<image><image>", images=3),
         [[IMAGE, text("a")], [text("b"), IMAGE, IMAGE]]),
        # Images without a place come first; a raw prompt is a message; a video has no place.
        (Task(id="t", messages=SYSTEM, media=(ref(), ref())), ["s", [IMAGE, IMAGE, text("what?")]]),
        (Task(id="t", prompt="a <image>", media=(ref(),)), [[text("a "), IMAGE]]),
        (VIDEO, ["a"]),
        # Parts stay where they are and become plain.
        (task([{"type": "text", "text": "a", "image": None}, URL]), [[text("a"), IMAGE]]),
    ],
)  # fmt: skip
def test_images_have_places_in_messages(asked: Task, placed: list[Any]) -> None:
    found = with_images(asked, MARK)
    assert contents(found) == placed
    assert not found.prompt or asked is VIDEO


def test_no_text_spells_an_image() -> None:
    placed = with_images(task("<i> <movie> <image>", images=0), MARK)
    assert contents(placed) == ["< i> < movie> < image>"]
    assert plain(plain("<i>", MARK), MARK) == "< i>"


@pytest.mark.parametrize(
    ("content", "images", "says"),
    [
        ("<image>", 2, "1 places for 2 images"),
        ("<image><image>", 1, "2 places for 1 images"),
        ([IMAGE], 0, "1 places for 0 images"),
        ([{"type": "video"}], 1, "neither text nor a list of parts"),
        (7, 1, "neither text nor a list of parts"),
    ],
)
def test_what_does_not_fit_says_so(content: Any, images: int, says: str) -> None:
    with pytest.raises(ImagesUnplaced, match=says):
        with_images(task(content, images=images), MARK)


@given(st.lists(st.one_of(st.integers(0, 6), st.just(MARK)), max_size=20))
def test_a_mark_is_one_unit(units: list[Any]) -> None:
    ids = [i for unit in units for i in (MARK.token_ids if unit is MARK else (unit,))]
    folded = fold(ids, MARK)
    assert len(folded) == len(units)
    images = units.count(MARK)
    assert unfold(folded, MARK) == (ids, list(range(images)))
    kept, which = unfold(folded[len(folded) // 2 :], MARK)
    assert kept.count(MARK.placeholder) == len(which)
    assert which == list(range(images))[images - len(which) :]


@given(st.lists(st.integers(1, 12)), st.data())
def test_expansions_are_read_back(counts: list[int], data: st.DataObject) -> None:
    """Images of one prompt are apart from each other, as their marks are."""
    words = st.lists(st.integers(0, 8), min_size=1, max_size=4)
    between = [data.draw(words) for _ in range(len(counts) + 1)]
    sent, told = list(between[0]), list(between[0])
    for count, after in zip(counts, between[1:], strict=True):
        sent += [9, *after]
        told += [9] * count + after
    assert expansions(sent, told, 9) == counts


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ([1, 9, 9, 3], "token 2 of the prompt came back as another"),
        ([1, 2], "image 0 got no tokens"),
        ([1, 9, 9], "token 2 of the prompt"),
        ([1, 9, 2, 4], "1 tokens were added"),
        ([], "token 0 of the prompt"),
    ],
)
def test_another_prompt_is_noticed(told: list[int], says: str) -> None:
    with pytest.raises(ExpansionMismatch, match=says):
        expansions([1, 9, 2], told, 9)


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
