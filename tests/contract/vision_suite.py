"""What a sampler of a vision model must do with `image_data` beside `input_ids`, as checks.

The engine builds on these: one placeholder an image in, as many as the image takes out, every other
id untouched. The same list runs against the scripted sampler and against the real server.
"""

from __future__ import annotations

import base64
import io
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from engine.core.images.placeholders import expansions
from tests.contract.client import WireClient

IMAGE, VISION_START, VISION_END, VIDEO = 261, 259, 260, 262
WORD = [ord(letter) - ord("!") for letter in "<image>"]
"""As tiny_vision_model.py's tokenizer writes it."""
TEXT = [65, 66, 67]
ONE = [*TEXT, VISION_START, IMAGE, VISION_END, 70]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A running sampler whose policy is one of `tiny_vision_model.py`, as far as ids go."""

    client: WireClient
    serial: itertools.count[int] = field(default_factory=itertools.count)

    def body(self, ids: list[int], images: list[str], **changes: Any) -> dict[str, Any]:
        return {
            "rid": f"vision-{next(self.serial):06d}",
            "input_ids": ids,
            "image_data": images,
            "return_logprob": True,
            "sampling_params": {"max_new_tokens": 4, "temperature": 0.0, "ignore_eos": True},
            **changes,
        }

    async def ask(self, ids: list[int], images: list[str], **changes: Any) -> dict[str, Any]:
        status, answer = await self.client.post("/generate", self.body(ids, images, **changes))
        assert status == 200, answer
        found: dict[str, Any] = answer
        return found


def picture(width: int, height: int, colour: str) -> str:
    out = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(out, "PNG")
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


RED, BLUE = picture(56, 56, "red"), picture(112, 56, "blue")


async def check_it_says_that_it_reads_images(t: Target) -> None:
    assert (await t.client.get("/model_info"))[1]["has_image_understanding"] is True


async def check_an_image_is_expanded_in_its_place(t: Target) -> None:
    """All other ids stay, and the count of the prompt's tokens is that of the expanded ids."""
    answer = await t.ask(ONE, [RED], return_prompt_token_ids=True)
    told = answer["prompt_token_ids"]
    (count,) = expansions(ONE, told, IMAGE)
    assert count > 1
    assert answer["meta_info"]["prompt_tokens"] == len(told) == len(ONE) - 1 + count


async def check_two_images_keep_their_order(t: Target) -> None:
    ids = [*ONE, 71, VISION_START, IMAGE, VISION_END]
    counts = []
    for images in ([RED, BLUE], [BLUE, RED]):
        answer = await t.ask(ids, images, return_prompt_token_ids=True)
        counts.append(expansions(ids, answer["prompt_token_ids"], IMAGE))
    assert counts[0] == counts[1][::-1]
    assert counts[0][0] != counts[0][1]


async def check_the_next_turn_begins_with_this_one(t: Target) -> None:
    """Also where it adds an image; the prefix cache holds what the first one computed."""
    first = await t.ask(ONE, [RED], return_prompt_token_ids=True)
    wrote = [token if token != IMAGE else 1 for token in first["output_ids"]]
    ids = [*ONE, *wrote, VISION_START, IMAGE, VISION_END, 72]
    second = await t.ask(ids, [RED, BLUE], return_prompt_token_ids=True)
    before = [*first["prompt_token_ids"], *wrote]
    assert second["prompt_token_ids"][: len(before)] == before


async def check_ids_are_told_only_when_asked_for(t: Target) -> None:
    asked = await t.client.stream(t.body(ONE, [RED], return_prompt_token_ids=True))
    told = asked.events[0]["prompt_token_ids"]
    assert all(event["prompt_token_ids"] == told for event in asked.events)
    silent = await t.client.stream(t.body(ONE, [RED]))
    assert all("prompt_token_ids" not in event for event in silent.events)
    assert {e["meta_info"]["prompt_tokens"] for e in silent.events} == {len(told)}


async def check_a_place_without_an_image_is_refused(t: Target) -> None:
    ids = [*ONE, VISION_START, IMAGE, VISION_END]
    status, answer = await t.client.post("/generate", t.body(ids, [RED]))
    assert status == 400
    assert "image" in answer["error"]["message"]
    stream = await t.client.stream(t.body(ids, [RED]))
    assert (stream.status, stream.done) == (200, True)
    assert stream.events[0]["error"]["retryable"] is False


async def check_other_words_for_media_are_refused(t: Target) -> None:
    """The server looks for them in the text of the ids, wherever they came from."""
    for ids in ([*ONE, *WORD], [*ONE, VIDEO]):
        stream = await t.client.stream(t.body(ids, [RED]))
        assert stream.events[0]["error"]["retryable"] is False


async def check_text_alone_is_as_ever(t: Target) -> None:
    body = t.body(TEXT, [], return_prompt_token_ids=True)
    del body["image_data"]
    _, answer = await t.client.post("/generate", body)
    assert answer["prompt_token_ids"] == TEXT


Check = Callable[[Target], Awaitable[None]]
CHECKS: list[Check] = [
    check for name, check in sorted(globals().items()) if name.startswith("check_")
]
