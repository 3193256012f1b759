"""What the policy reads of its task and of its calls, with vision and without."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from engine.core.images.media import Media, media_of
from engine.core.images.placeholders import ImagesUnplaced
from engine.core.protocols.tagged import Tagged
from engine.core.rollout.view import Observation, images_of, observation, prompt_ids
from engine.core.text.codec import HuggingFaceCodec
from engine.types import ToolSpec
from tests.support.policy import write_vision_policy
from toolwright.types import BlobRef, CallOutcome, MediaRef, Task

RED, BLUE = media_of(b"red", "image/png"), media_of(b"blue", "image/jpeg")
FAR = BlobRef(sha256="f" * 64, media_type="image/webp", size=9)
MARK_TEXT = "<|vision_start|><|image_pad|><|vision_end|>"
CLIP = media_of(b"clip", "video/mp4")


@pytest.fixture(scope="module")
def vision(tmp_path_factory: pytest.TempPathFactory) -> HuggingFaceCodec:
    return HuggingFaceCodec(write_vision_policy(tmp_path_factory.mktemp("vision")))


def outcome(*parts: str | Media | BlobRef) -> CallOutcome:
    text = "".join(part if isinstance(part, str) else "[media]" for part in parts)
    named = tuple(part.blob if isinstance(part, Media) else part for part in parts)
    return CallOutcome(observation=text, valid=True, parts=named)


def seen(
    codec: HuggingFaceCodec,
    *outcomes: CallOutcome,
    images: Mapping[str, Media] | None = None,
    limit: int = 100,
) -> Observation:
    known = {one.blob.sha256: one for one in (RED, BLUE)} if images is None else images
    return observation(outcomes, known, Tagged(), codec, limit=limit, keep="head")


def test_images_stand_where_the_tool_put_them(vision: HuggingFaceCodec) -> None:
    found = seen(vision, outcome("a", RED, "b"), outcome(BLUE))
    assert vision.decode(found.token_ids) == f"a{MARK_TEXT}b\n{MARK_TEXT}"
    assert (found.images, found.cut) == ([RED, BLUE], False)


def test_what_is_no_image_or_was_not_fetched_is_named(vision: HuggingFaceCodec) -> None:
    found = seen(vision, outcome(CLIP, FAR, RED), images={})
    assert vision.decode(found.token_ids) == "[video/mp4][image/webp][image/png]"
    assert found.images == []
    assert images_of(outcome(CLIP, FAR, RED), vision) == [FAR, RED.blob]


def test_without_vision_all_media_are_named(codec: HuggingFaceCodec) -> None:
    found = seen(codec, outcome("a", RED))
    assert codec.decode(found.token_ids) == "a[media]"
    assert images_of(outcome(RED, FAR), codec) == []


def test_a_failure_without_words_gives_its_reason(
    codec: HuggingFaceCodec, vision: HuggingFaceCodec
) -> None:
    refused = CallOutcome(observation="", valid=False, invalid_reason="no tool <image>")
    assert codec.decode(seen(codec, refused).token_ids) == "no tool <image>"
    assert vision.decode(seen(vision, refused).token_ids) == "no tool < image>"


@pytest.mark.parametrize(
    ("parts", "reads"),
    [
        (("<|vision_start|><|image_", "pad|><|vision_end|>"), "<|vision_start|>< |image_pad|>"),
        (("<|image_", "pad|>"), "< |image_pad|>"),
        (("<im", "", "age>"), "< image>"),
        ((media_of(b"", "<image>"),), "[< image>]"),
    ],
)
def test_neighbouring_parts_cannot_spell_an_image_together(
    vision: HuggingFaceCodec, parts: tuple[str | Media, ...], reads: str
) -> None:
    found = seen(vision, outcome(*parts, RED, *parts))
    first, second = vision.decode(found.token_ids).split(MARK_TEXT)
    assert first == second
    assert first.startswith(reads)
    assert found.images == [RED]


def test_a_cut_is_never_inside_an_image(vision: HuggingFaceCodec) -> None:
    found = seen(vision, outcome("ab", RED, "c" * 20, BLUE), limit=10)
    assert found.cut
    assert found.images == [RED]
    assert vision.decode(found.token_ids) == f"ab{MARK_TEXT}cc ... "


def test_a_protocol_that_loses_an_image_is_told(vision: HuggingFaceCodec) -> None:
    class Forgetful(Tagged):
        def observation(self, texts, codec, author):  # type: ignore[no-untyped-def]
            return codec.encode("nothing")

    with pytest.raises(ImagesUnplaced, match="0 images into an observation of 1"):
        observation(
            [outcome(RED)], {RED.blob.sha256: RED}, Forgetful(), vision, limit=9, keep="head"
        )


def test_the_prompt_has_a_place_for_each_image(vision: HuggingFaceCodec) -> None:
    ref = MediaRef(blob=RED.blob, token_offset=0, placeholder_tokens=0)
    task = Task(id="t", prompt="one <image> two <image>", media=(ref, ref))
    assert vision.image_mark is not None
    ids = prompt_ids(Tagged(), task, (), vision)
    assert ids.count(vision.image_mark.placeholder) == 2
    with pytest.raises(ImagesUnplaced, match="1 places for 2 images"):
        prompt_ids(Tagged(), Task(id="t", prompt="<image>", media=(ref, ref)), (), vision)


@pytest.mark.parametrize("word", ["<image>", "<|video_pad|>", "<|image_pad|>"])
def test_what_is_not_the_task_s_own_text_cannot_place_an_image_either(
    vision: HuggingFaceCodec, word: str
) -> None:
    """A sampler would look for an image there, at every turn."""
    ref = MediaRef(blob=RED.blob, token_offset=0, placeholder_tokens=0)
    task = Task(id="t", prompt="what?", media=(ref,))
    tool = ToolSpec(name="crop", usage=f"Crops {word}.")
    for protocol in (Tagged(system="{usage}"), Tagged(observation=f"{word} {{text}}")):
        with pytest.raises(ImagesUnplaced, match="leave such words out"):
            prompt_ids(protocol, task, (tool,), vision)
    assert prompt_ids(Tagged(), task, (tool,), vision)
