"""VerlTool's observations and ours, both ways."""

import base64

import pytest

from toolsvc.sources.verltool.observations import as_observation, as_result
from toolsvc.types import Media, Result, Text, ToolError
from toolwright.types import BlobRef, ToolErrorKind

PNG = Media(media_type="image/png", data=b"\x89PNG")
URL = "data:image/png;base64," + base64.b64encode(PNG.data).decode()


def no_blobs(sha256: str) -> bytes:
    raise AssertionError(sha256)


def test_images_stand_where_they_are_marked_and_the_others_last() -> None:
    told = {"obs": "one <image> two", "image": [URL, URL]}
    result = as_result(told, False, True)
    assert result.observation == (Text(text="one "), PNG, Text(text=" two"), PNG)
    again = as_observation(result, no_blobs)
    assert again == {"obs": "one <image> two<image>", "image": [URL, URL]}


def test_a_mark_without_an_image_is_text() -> None:
    result = as_result("an <image> tag", False, True)
    assert "".join(part.text for part in result.observation if isinstance(part, Text)) == (
        "an <image> tag"
    )


def test_large_media_are_fetched_by_their_hash() -> None:
    blob = BlobRef(sha256="5a", media_type="audio/wav", size=3)
    told = as_observation(Result(observation=(blob,)), {"5a": b"wav"}.__getitem__)
    assert told == {"obs": "<audio>", "audio": ["data:audio/wav;base64,d2F2"]}


def test_rewards_metrics_reasons_and_errors_travel_beside_the_text() -> None:
    error = ToolError(kind=ToolErrorKind.INVALID_ACTION, message="no such tag")
    result = Result.of(
        "x", reward=0.0, metrics={"hits": 1}, valid=False, invalid_reason="no tag", error=error
    )
    assert as_observation(result, no_blobs) == {
        "obs": "x",
        "reward": 0.0,
        "metrics": {"hits": 1},
        "invalid_reason": "no tag",
        "error": "no such tag",
    }


def test_an_invalid_action_is_an_error_unless_it_ends_the_trajectory() -> None:
    wrong = as_result("", False, False)
    assert wrong.error.kind is ToolErrorKind.INVALID_ACTION
    assert wrong.invalid_reason
    answered = as_result("", True, False)
    assert (answered.done, answered.valid, answered.error) == (True, False, None)


@pytest.mark.parametrize(
    "told",
    [
        None, 3, {"text": "x"}, {"obs": 1}, {"obs": "x", "image": "photo.png"},
        {"obs": "", "image": 3},
    ],
)  # fmt: skip
def test_what_is_no_observation_is_refused(told: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        as_result(told, False, True)


def test_broken_base64_is_refused() -> None:
    with pytest.raises(ValueError, match="base64"):
        as_result({"obs": "", "image": "data:image/png;base64,!"}, False, True)
