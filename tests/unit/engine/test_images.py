"""Images in prompts and observations: where they stand, what cannot forge one, what is cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_marks_in_the_text_place_images() -> None:
    placed = with_images(task("<image>a", "b<image><image>", images=3), MARK)
    assert contents(placed) == [[IMAGE, text("a")], [text("b"), IMAGE, IMAGE]]


def test_images_without_a_place_come_first() -> None:
    messages = ({"role": "system", "content": "s"}, {"role": "user", "content": "what?"})
    placed = with_images(Task(id="t", messages=messages, media=(ref(), ref())), MARK)
    assert contents(placed) == ["s", [IMAGE, IMAGE, text("what?")]]


def test_a_raw_prompt_is_a_message() -> None:
    placed = with_images(Task(id="t", prompt="a <image>", media=(ref(),)), MARK)
    assert (placed.prompt, contents(placed)) == ("", [[text("a "), IMAGE]])


def test_parts_stay_where_they_are_and_become_plain() -> None:
    url = {"type": "image_url", "image_url": {"url": "x"}, "text": None}
    placed = with_images(task([{"type": "text", "text": "a", "image": None}, url]), MARK)
    assert contents(placed) == [[text("a"), IMAGE]]


def test_videos_have_no_place() -> None:
    only_video = Task(id="t", prompt="a", media=(ref("video/mp4"),))
    assert contents(with_images(only_video, MARK)) == ["a"]


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
