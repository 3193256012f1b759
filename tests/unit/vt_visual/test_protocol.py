"""What the policy is told, and what its calls become."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.types import Answer, Calls, End, ToolSpec
from tests.support.codecs import END, ToyCodec
from tests.support.recipes import Part
from tests.support.views import view_of
from tests.unit.vt_visual.conftest import look
from toolsvc.tools.image.arguments import CROPS, Function, ImageArguments
from toolsvc.tools.image.types import MOST_FRAMES
from toolwright.types import BlobRef, MediaRef, Task

CODEC = ToyCodec("<think>", "</think>")
IMAGE = ToolSpec(name="image", stop_strings=("</tool_call>",), usage="looks")
PYTHON = ToolSpec(name="python", open_tag="<python>", close_tag="</python>")


def task(**metadata: Any) -> Task:
    return Task(id="t", messages=({"role": "user", "content": "What?"},), metadata=metadata)


def names(shown: list[Any]) -> list[str]:
    return [one["function"]["name"] for one in shown]


def test_an_image_is_cropped_and_a_video_has_frames_too(part: Part) -> None:
    protocol = part("protocol.Visual")()
    crops = ["crop_image", "crop_image_normalized"]
    assert names(protocol.shown(task(), [IMAGE])) == crops
    assert names(protocol.shown(task(is_video=False), [IMAGE])) == crops
    assert names(protocol.shown(task(is_video=True), [IMAGE])) == [*crops, "select_frames"]
    blob = BlobRef(sha256="0" * 64, media_type="video/mp4", size=1)
    video = MediaRef(blob=blob, token_offset=0, placeholder_tokens=0)
    brought = replace(task(is_video=False), media=(video,))
    assert names(protocol.shown(brought, [IMAGE])) == [*crops, "select_frames"]
    assert names(protocol.shown(task(), [IMAGE, PYTHON])) == [*crops, "python"]
    assert names(protocol.shown(task(), [PYTHON])) == ["python"]
    assert protocol.shown(task(), []) == []


def test_a_tiny_policy_is_told_nothing(part: Part) -> None:
    protocol = part("protocol.Visual")(image_prompt="", functions=False)
    assert protocol.shown(task(), [IMAGE]) == []
    assert protocol.opening(task(), [IMAGE]) == list(task().messages)


def test_the_prompt_is_that_of_images_or_of_videos(part: Part) -> None:
    protocol = part("protocol.Visual")(image_prompt="look", video_prompt="watch")
    for asked, prompt in ((task(), "look"), (task(is_video=True), "watch")):
        first, second = protocol.opening(asked, [IMAGE])
        assert first == {"role": "system", "content": prompt}
        assert second["content"] == "What?"


def test_a_task_keeps_its_own_message_of_the_system(part: Part) -> None:
    own = ({"role": "system", "content": "mine"}, {"role": "user", "content": "What?"})
    assert part("protocol.Visual")().opening(Task(id="t", messages=own), [IMAGE]) == list(own)


def test_the_functions_are_the_tools(part: Part) -> None:
    """What the prompt shows is what the tool takes: names, arguments and the most frames."""
    shown = {one["function"]["name"]: one["function"] for one in part("prompts.CROPS")}
    frames = part("prompts.FRAMES")[0]["function"]
    assert set(shown) <= set(map(str, CROPS))
    for name, function in shown.items():
        box = [0.1, 0.1, 0.2, 0.2] if name.endswith("normalized") else [10, 10, 20, 20]
        given = {"bbox_2d": box, "target_image": 2}
        assert set(function["parameters"]["required"]) == set(given)
        ImageArguments.model_validate({"function": name, **given})
    limits = frames["parameters"]["properties"]["target_frames"]
    assert (frames["name"], limits["maxItems"]) == (Function.SELECT_FRAMES, MOST_FRAMES)


@pytest.mark.parametrize("name", ["zoom_in", "crop_image", "crop_image_normalized", "no_such"])
def test_a_call_goes_to_the_tool_as_it_was_written(part: Part, name: str) -> None:
    text = "There. " + look(name=name)
    decided = part("protocol.Visual")().decide(text, "</tool_call>", view_of([IMAGE]), CODEC)
    assert isinstance(decided, Calls)
    (call,) = decided.calls
    assert (call.tool, call.action, call.invalid_reason) == ("image", text, "")


def test_an_action_without_a_call_answers(part: Part) -> None:
    protocol = part("protocol.Visual")()
    decided = protocol.decide(f"So \\boxed{{B}}{END}", END, view_of([IMAGE]), CODEC)
    assert decided == Answer(text="So \\boxed{B}")
    assert isinstance(protocol.decide(END, END, view_of([IMAGE]), CODEC), End)
