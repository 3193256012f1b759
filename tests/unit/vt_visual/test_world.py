"""The demonstration's pictures, questions and demonstrations."""

from __future__ import annotations

import io
import json
import re
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from tests.support.recipes import Part
from toolsvc.tools.image.arguments import ImageArguments
from toolsvc.tools.image.boxes import box_in
from toolsvc.tools.image.types import UnusableFile

COLOURS = ("red", "green", "blue", "yellow")
SEEN = (56, 56)
"""Pixels of any picture in the tiny policy's eye."""


def scene(part: Part, number: int = 34, kind: str = "shelf") -> Any:
    return part("world/pictures.Scene")(kind=kind, colours=COLOURS, numbers=(number, 80, 15, 52))


def asked(part: Part, split: str, count: int, seed: int = 1) -> list[Any]:
    return list(islice(part("world/task.questions")(split, seed), count))


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def contrast(one: Image.Image, other: Image.Image) -> float:
    """The largest difference of a pixel in the policy's eye, of 255."""
    seen = [np.asarray(image.resize(SEEN, Image.Resampling.BICUBIC), int) for image in (one, other)]
    return float(np.abs(seen[0] - seen[1]).max())


@pytest.mark.parametrize("kind", ["shelf", "chart", "page"])
def test_a_scene_is_the_same_picture_every_time(part: Part, kind: str) -> None:
    draw = part("world/pictures.draw")
    one = draw(scene(part, kind=kind))
    assert one == draw(scene(part, kind=kind))
    assert opened(one).size == (400, 400)
    assert one != draw(scene(part, number=35, kind=kind))


@pytest.mark.parametrize("kind", ["shelf", "chart", "page"])
def test_a_number_can_be_read_after_a_zoom_alone(part: Part, kind: str) -> None:
    """Strokes are black on white in a crop, and a smudge in the whole picture."""
    draw, cut = part("world/pictures.draw"), part("world/demonstrations.cut")
    for low, high in ((11, 88), (34, 54), (20, 27), (62, 65)):
        pictures = [draw(scene(part, number, kind)) for number in (low, high)]
        assert contrast(*map(opened, pictures)) < 140
        assert contrast(*(opened(cut(one, 0)) for one in pictures)) > 240
        assert cut(pictures[0], 1) == cut(pictures[1], 1)


def test_a_question_has_its_answer_and_its_place(part: Part) -> None:
    for question in asked(part, "training", 200):
        field = question.field
        assert question.scene.colours[field] == question.colour
        assert question.answer == str(question.scene.numbers[field])
        assert question.colour in question.text
        assert len(set(question.scene.colours)) == 4


def test_no_question_of_training_asks_for_what_is_held_out(part: Part) -> None:
    triples = [
        {(one.colour, one.field, one.answer) for one in asked(part, split, 4000)}
        for split in ("training", "heldout")
    ]
    assert not triples[0] & triples[1]
    assert len(triples[1]) == 6 * 4 * 90 / 5
    for held in range(3):
        assert {one[held] for one in triples[0]} == {one[held] for one in triples[1]}


def test_the_same_seed_asks_the_same(part: Part) -> None:
    first = [one.text for one in asked(part, "training", 50)]
    assert first == [one.text for one in asked(part, "training", 50)]
    assert first != [one.text for one in asked(part, "training", 50, seed=2)]


def test_the_files_are_the_same_every_time(part: Part, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        part("world/task.write")(tmp_path / name / "held.jsonl", "heldout", seed=3, count=5)
    files = [sorted((tmp_path / name).rglob("*.*")) for name in ("a", "b")]
    assert [file.read_bytes() for file in files[0]] == [file.read_bytes() for file in files[1]]
    rows = [json.loads(line) for line in (tmp_path / "a/held.jsonl").open(encoding="utf-8")]
    assert [row["images"] for row in rows] == [[f"held/{number}.png"] for number in range(5)]
    assert all((tmp_path / "a" / row["images"][0]).is_file() for row in rows)
    assert all(row["answer"] not in row["metadata"] for row in rows)


@pytest.mark.parametrize("field", range(4))
def test_a_demonstrated_look_is_what_the_tool_would_show(part: Part, field: int) -> None:
    """The box is inside, the tool cuts what the demonstration shows, and the number is in it."""
    action = part("world/demonstrations.call")(field)
    given = json.loads(action.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    arguments = ImageArguments.model_validate({"function": given["name"], **given["arguments"]})
    assert arguments.bbox_2d is not None
    box = box_in((400, 400), arguments.bbox_2d, normalized=True, padding=0.1)
    left, top, right, bottom = part("world/pictures.number_box")(field)
    assert box.left < left and box.top < top and box.right > right and box.bottom > bottom
    picture = part("world/pictures.draw")(scene(part))
    shown = opened(part("world/demonstrations.cut")(picture, field))
    assert np.array_equal(np.asarray(shown), np.asarray(opened(picture).crop(box)))


def test_a_demonstration_shows_a_picture_a_place(part: Part) -> None:
    mark = part("world/demonstrations.IMAGE")
    shown = list(islice(part("world/demonstrations.conversations")(1), 300))
    for one in shown:
        observations = [turn["content"] for turn in one.turns if turn["role"] == "tool"]
        assert [text.count(mark) for text in observations] == [1] * len(observations)
        assert len(one.pictures) == 1 + len(observations)
        assert one.turns[-1]["role"] == "assistant"
        assert re.fullmatch(r"\\boxed\{\d\d\}", one.turns[-1]["content"])
        (first, *_) = one.messages
        assert [piece["type"] for piece in first["content"]] == ["image", "text"]
    looked = sum(len(one.pictures) > 1 for one in shown) / len(shown)
    assert 0.25 < looked < 0.45


def test_what_is_looked_at_last_is_answered(part: Part) -> None:
    told = part("world/demonstrations.conversation")
    question = asked(part, "training", 1)[0]
    for looks in product(range(4), repeat=2):
        one = told(question, list(looks))
        seen = question.scene.numbers[looks[-1]]
        assert one.turns[-1]["content"] == f"\\boxed{{{seen}}}"


def test_what_is_said_before_a_look_is_so(part: Part) -> None:
    """What stands where, once; then the thing, the place and the box are those of one field."""
    told, places = part("world/demonstrations.conversation"), part("world/pictures.PLACES")
    for question in asked(part, "training", 30):
        for looks in product(range(4), repeat=2):
            turns = told(question, list(looks)).turns
            first, second = (turn["content"] for turn in turns if "<tool_call>" in turn["content"])
            things = zip(question.scene.colours, places, strict=True)
            caption = f"There is {', '.join(' '.join(thing) for thing in things)}. "
            assert first.startswith(caption)
            for field, said in zip(looks, (first.removeprefix(caption), second), strict=True):
                colour, place = question.scene.colours[field], places[field]
                call = part("world/demonstrations.call")(field)
                assert said == f"I look for {colour}: {colour} {place}.{call}"


def test_an_exercise_shows_no_other_number_than_the_one_asked_for(part: Part) -> None:
    """Held-out triples of colour, place and number stay unseen where reading is practised."""
    (question,) = asked(part, "training", 1)
    one = part("world/lessons.read")(question)
    (shown,) = one.pictures
    assert shown == part("world/demonstrations.cut")(
        part("world/pictures.draw")(question.scene), question.field
    )
    assert one.turns[0]["content"] == f"\\boxed{{{question.answer}}}"


def test_the_warm_up_has_its_share_of_every_kind_of_row(part: Part) -> None:
    rows = list(islice(part("world/lessons.lessons")(1, 400), 800))
    first, then = ([one.question for one in some] for some in (rows[:400], rows[400:]))
    assert set(first) == {"What stands where?", "Which number is this?"}
    assert 60 < first.count("What stands where?") < 140
    assert 60 < then.count("Which number is this?") < 140
    assert 100 < sum(one.startswith("Look at the ") for one in then) < 180
    assert any(one.startswith("Which number is on the ") for one in then)
    assert all(one.turns[-1]["role"] == "assistant" for one in rows)


@pytest.mark.parametrize(
    "box", [[0.3, 0.2, 0.2, 0.3], [0.2, 0.3, 0.3, 0.2], [0.2, 0.2, 0.2, 0.3], [0.2, 0.2, 1.2, 0.3]]
)
def test_boxes_that_are_not_ordered_or_leave_the_shares_are_refused(box: list[float]) -> None:
    with pytest.raises(ValidationError, match=r"left < right|from 0 to 1"):
        ImageArguments.model_validate({"function": "crop_image_normalized", "bbox_2d": box})


def test_a_box_outside_of_the_picture_is_refused() -> None:
    with pytest.raises(UnusableFile, match="not inside the image, which is 400 x 400"):
        box_in((400, 400), [10, 10, 401, 20], normalized=False, padding=0.1)


def test_nine_frames_are_too_many() -> None:
    frames = {"function": "select_frames", "target_frames": list(range(1, 10))}
    with pytest.raises(ValidationError, match="at most 8"):
        ImageArguments.model_validate(frames)
