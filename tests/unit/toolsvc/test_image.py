"""The image tool's pure parts: actions, arguments, boxes, sizes, messages, the session's album."""

import contextlib
import json
import math
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from toolsvc.errors import Reason, Refused
from toolsvc.plugin.actions import InvalidAction
from toolsvc.tools.image.album import Album, HeldFile, StoredFile, named_files
from toolsvc.tools.image.arguments import Function, ImageArguments
from toolsvc.tools.image.boxes import PADDING_PIXELS, box_in, evenly, fitted, resized
from toolsvc.tools.image.image_tool import ImageOptions, ImageTool, find_request
from toolsvc.tools.image.types import SHORT_SIDE, ImageAnswer, ImageFault, Picture, UnusableFile
from toolsvc.tools.image.wire import (
    LONGEST,
    NoAnswer,
    most_answered,
    pack_answer,
    read_answer,
)
from toolsvc.types import Media, SessionInfo

TOOL = ImageTool(ImageOptions())
SIDES = st.integers(1, 10_000)
SIZES = st.tuples(SIDES, SIDES)
PADDINGS = st.floats(0, 1)


def call(name: Any, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def checked(action: str) -> ImageArguments:
    return ImageArguments.model_construct(
        **TOOL.make_arguments(TOOL.parse(action, TOOL.describe()))
    )


# What the policy writes


def test_a_function_is_called_by_its_name_or_by_the_tools() -> None:
    action = "so I look closer " + call("crop_image", bbox_2d=[1, 2, 30, 40], target_image=2)
    by_name = checked(action)
    by_tool = checked(call("image", function="crop_image", bbox_2d=[1, 2, 30, 40], target_image=2))
    assert by_name == by_tool
    assert by_name.bbox_2d == (1, 2, 30, 40)
    assert TOOL.make_arguments({"function": "rotate_image", "angle": 90})["angle"] == 90


def test_the_last_call_counts() -> None:
    action = call("rotate_image", angle=1) + call("rotate_image", angle=2) + " and so on"
    assert find_request(action, "image") == {"function": "rotate_image", "angle": 2}


@pytest.mark.parametrize(
    ("action", "says"),
    [
        ("just words", "no <tool_call>"),
        ("</tool_call>", "without <tool_call>"),
        ('{"name": "zoom_in"}</tool_call>', "without <tool_call>"),
        ("<tool_call>{</tool_call>", "not JSON"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "not JSON"),
        ("<tool_call>[1]</tool_call>", 'needs {"name", "arguments"}'),
        ('<tool_call>{"name": "zoom_in", "arguments": []}</tool_call>', "a JSON object"),
        (call("delete_image"), "there is no function 'delete_image'"),
        (call(["zoom_in"]), 'needs {"name", "arguments"}'),
        (call(None), 'needs {"name", "arguments"}'),
        (call("image"), "function: Field required"),
        (call("zoom_in"), "zoom_in needs bbox_2d"),
        (call("zoom_in", bbox_2d=[0, 0, 1]), "bbox_2d"),
        (call("zoom_in", bbox_2d="0,0,1,1"), "bbox_2d"),
        (call("zoom_in", bbox_2d=[0, 0, 0, 1]), "left < right"),
        (call("zoom_in", bbox_2d=[5, 9, 8, 7]), "left < right"),
        (call("zoom_in", bbox_2d=[-1, 0, 8, 7]), "greater than or equal to 0"),
        (call("zoom_in", bbox_2d=[0, 0, math.nan, 1]), "no JSON"),
        (call("zoom_in", bbox_2d=[0, 0, math.inf, 9]), "no JSON"),
        (call("crop_image_normalized", bbox_2d=[0, 0, 0.5, 1.1]), "numbers from 0 to 1"),
        (call("zoom_in", bbox_2d=[0, 0, 1, 1], target_image=0), "target_image"),
        (call("zoom_in", bbox_2d=[0, 0, 1, 1], colour="red"), "colour"),
        (call("resize_image"), "needs width, height, or both"),
        (call("resize_image", width=0), "width"),
        (call("resize_image", width=10**400), "larger than"),
        (call("rotate_image"), "rotate_image needs angle"),
        (call("rotate_image", angle=math.nan), "no JSON"),
        (call("rotate_image", angle=361), "angle"),
        (call("select_frames"), "select_frames needs target_frames"),
        (call("select_frames", target_frames=[]), "target_frames"),
        (call("select_frames", target_frames=[0]), "target_frames"),
        (call("select_frames", target_frames=[1] * 9), "at most 8"),
    ],
)
def test_what_makes_no_sense_is_an_invalid_action(action: str, says: str) -> None:
    with pytest.raises(InvalidAction) as failure:
        checked(action)
    assert says in str(failure.value)


@given(action=st.text() | st.text().map(lambda text: f"<tool_call>{text}</tool_call>"))
def test_no_text_raises_anything_else(action: str) -> None:
    with pytest.raises(InvalidAction):
        checked(action)


@given(
    name=st.sampled_from(Function),
    box=st.lists(st.floats() | st.integers(), max_size=5),
    frames=st.lists(st.integers(), max_size=10),
    width=st.integers() | st.none(),
    angle=st.floats(),
)
def test_what_passes_is_in_order(
    name: Function, box: list[float], frames: list[int], width: int | None, angle: float
) -> None:
    given = {"bbox_2d": box, "target_frames": frames, "width": width, "angle": angle}
    try:
        arguments = checked(call(name, **given))
    except InvalidAction:
        return
    assert arguments.bbox_2d is not None
    assert all(map(math.isfinite, arguments.bbox_2d))
    if name in ("zoom_in", "crop_image", "crop_image_normalized"):
        left, top, right, bottom = arguments.bbox_2d
        assert 0 <= left < right
        assert 0 <= top < bottom


# Where it cuts


@given(size=SIZES, corners=st.tuples(*[st.floats(0, 1)] * 4), padding=PADDINGS)
def test_a_box_inside_gives_pixels_inside(
    size: tuple[int, int], corners: tuple[float, float, float, float], padding: float
) -> None:
    left, right = sorted(corners[:2])
    top, bottom = sorted(corners[2:])
    assume(left < right and top < bottom)
    box = box_in(size, (left, top, right, bottom), normalized=True, padding=padding)
    assert 0 <= box.left < box.right <= size[0]
    assert 0 <= box.top < box.bottom <= size[1]
    assert box.left <= left * size[0]
    assert box.right >= right * size[0] or box.right == size[0]
    assert left * size[0] - box.left <= min(padding * size[0], PADDING_PIXELS) + 1


def test_pixels_and_shares_name_the_same_box() -> None:
    shares = box_in((1000, 500), (0.2, 0.2, 0.4, 0.6), normalized=True, padding=0.1)
    pixels = box_in((1000, 500), (200, 100, 400, 300), normalized=False, padding=0.1)
    assert shares == pixels == (100, 50, 500, 350)
    assert shares.size == (400, 300)


@pytest.mark.parametrize("bbox", [(0, 0, 101, 50), (0, 0, 100, 50.5), (200, 0, 300, 50)])
def test_a_box_outside_is_refused_with_the_images_size(bbox: tuple[float, ...]) -> None:
    with pytest.raises(UnusableFile, match="100 x 50 pixels") as failure:
        box_in((100, 50), bbox, normalized=False, padding=0.1)
    assert failure.value.fault is ImageFault.REQUEST


def test_four_numbers_up_to_1_are_shares_whatever_the_function() -> None:
    for name in ("zoom_in", "crop_image", "crop_image_normalized"):
        assert checked(call(name, bbox_2d=[0, 0, 0.5, 1])).normalized
    assert not checked(call("crop_image", bbox_2d=[0, 0, 2, 1])).normalized


# How large a result is


@given(size=SIZES, long_side=st.integers(64, 8192))
def test_a_result_keeps_its_ratio_within_the_bounds(size: tuple[int, int], long_side: int) -> None:
    try:
        width, height = fitted(size, long_side)
    except UnusableFile as error:
        assert error.fault is ImageFault.REQUEST
        assert max(size) * SHORT_SIDE > min(size) * long_side
        return
    assert min(width, height) >= SHORT_SIDE
    assert max(width, height) <= long_side
    if min(size) >= SHORT_SIDE and max(size) <= long_side:
        assert (width, height) == size
    scale = min(1, long_side / max(size)) if min(width, height) > SHORT_SIDE else width / size[0]
    assert abs(height - size[1] * scale) <= size[1] / size[0] + 1


@pytest.mark.parametrize(("width", "height"), [(27, 100), (2049, None), (None, 1999), (30, None)])
def test_a_size_beyond_the_bounds_is_refused(width: int | None, height: int | None) -> None:
    with pytest.raises(UnusableFile, match="from 28 to 2048"):
        resized((800, 600), width, height, 2048)


# Which frames


@given(total=st.integers(1, 100_000), wanted=st.integers(1, 300))
def test_sampled_frames_are_spread_evenly(total: int, wanted: int) -> None:
    places = evenly(total, wanted)
    assert len(places) == min(total, wanted)
    assert places == sorted(set(places))
    assert places[0] == 0
    if len(places) > 1:
        assert places[-1] == total - 1
        steps = [after - before for before, after in pairwise(places)]
        assert max(steps) - min(steps) <= 1


# What crosses to the decoding processes and back


@given(pictures=st.lists(st.binary(min_size=1, max_size=50), max_size=8))
def test_an_answer_survives_its_way(pictures: list[bytes]) -> None:
    answer = ImageAnswer(
        [
            Picture(data=data, media_type="image/png", size=(40, 30), note="frame 1")
            for data in pictures
        ]
    )
    packed = pack_answer(answer)
    assert read_answer(packed, long_side=64) == answer
    assert len(packed) <= most_answered(TOOL._limits, len(pictures))


def answer_of(body: bytes, data: bytes = bytes(100)) -> bytes:
    return struct.pack("=I", len(body)) + body + data


def answer_head(**fields: Any) -> bytes:
    picture = {"length": 100, "media_type": "image/png", "size": [40, 30], **fields}
    return json.dumps({"pictures": [picture]}).encode()


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"abc",
        struct.pack("=I", 1 << 31),
        answer_of(b" " * (LONGEST + 1)),
        answer_of(b""),
        answer_of(b"[]"),
        answer_of(answer_head(length=101)),
        answer_of(answer_head(length=99)),
        answer_of(answer_head(length=-1)),
        answer_of(answer_head(size=[65, 30])),
        answer_of(answer_head(size=[0, 30])),
        answer_of(answer_head(media_type="text/html")),
        answer_of(answer_head(note="x" * 201)),
        answer_of(
            json.dumps({"pictures": [json.loads(answer_head())["pictures"][0]] * 9}).encode()
        ),
        answer_of(b'{"fault": "colour"}'),
    ],
)
def test_the_service_believes_no_answer_beyond_its_bounds(packed: bytes) -> None:
    assert len(read_answer(answer_of(answer_head()), long_side=64).pictures[0].data) == 100
    with pytest.raises(NoAnswer):
        read_answer(packed, long_side=64)


@given(data=st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(NoAnswer):
        read_answer(data, long_side=64)


# What a session holds


def picture(count: int) -> Picture:
    return Picture(data=b"p" * count, media_type="image/png", size=(1, 1))


def test_an_album_counts_from_1_and_never_renumbers() -> None:
    first = HeldFile(data=b"first")
    album = Album([first], most_images=4, most_bytes=100)
    assert album.add([picture(10), picture(20)]) == [2, 3]
    assert album.image(1) is first
    assert album.image(3) == HeldFile(data=b"p" * 20)
    for number in (4, 10**30):
        with pytest.raises(UnusableFile, match=f"no image {number}: there are 3"):
            album.image(number)
    with pytest.raises(UnusableFile, match="no video 1: there is none"):
        album.video(1)


def test_an_album_is_bounded_and_keeps_what_it_has() -> None:
    album = Album([HeldFile(data=b"x" * 1000)], most_images=3, most_bytes=100)
    with pytest.raises(UnusableFile, match="more than 100 bytes"):
        album.add([picture(60), picture(60)])
    assert album.add([picture(60)]) == [2]
    with pytest.raises(UnusableFile, match="can hold 3") as failure:
        album.add([picture(1), picture(1)])
    assert failure.value.fault is ImageFault.LIMIT
    assert len(album.images) == 2


def test_a_task_with_too_many_images_is_refused() -> None:
    with pytest.raises(Refused, match="brings 2 images") as failure:
        Album([HeldFile(data=b"x")] * 2, most_images=1, most_bytes=100)
    assert failure.value.reason is Reason.INVALID_REQUEST


def test_metadata_name_files_beneath_the_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.png").touch()
    (tmp_path / "secret").touch()
    (folder / "link").symlink_to(tmp_path / "secret")
    (found,) = named_files({"images": ["sub/a.png"]}, "images", folder)
    assert found == StoredFile(path=folder.resolve() / "sub" / "a.png")
    assert named_files({}, "images", folder) == []
    beyond = ["../secret", str(tmp_path / "secret"), "link", "sub", "", "none", "\0", "x" * 5000]
    for names in (*([name] for name in beyond), "sub/a.png", [7], {"a": 1}, None):
        with pytest.raises(Refused) as failure:
            named_files({"images": names}, "images", folder)
        assert failure.value.reason is Reason.INVALID_REQUEST


def session(metadata: dict[str, Any], *media: Media) -> SessionInfo:
    blobs = {str(number): one for number, one in enumerate(media)}
    return SessionInfo(session_id="s", owner="o", metadata=metadata, blobs=blobs)


def test_a_session_begins_with_its_blobs_and_then_the_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    image = Media(media_type="image/png", data=b"image")
    video = Media(media_type="video/mp4", data=b"video")
    tool = ImageTool(ImageOptions(folder=tmp_path))
    album = tool.open(session({"images": ["a.png"]}, video, image))
    assert album.images == [HeldFile(data=b"image"), StoredFile(path=tmp_path.resolve() / "a.png")]
    assert album.videos == [HeldFile(data=b"video")]


def test_files_without_a_folder_are_refused_unless_blobs_came() -> None:
    with pytest.raises(Refused, match="no folder") as failure:
        TOOL.open(session({"images": ["a.png"]}))
    assert "image.folder" in failure.value.fix
    image = Media(media_type="image/png", data=b"image")
    assert len(TOOL.open(session({"images": ["a.png"]}, image)).images) == 1
