"""What the image tool shows: every format, boxes, sizes, frames."""

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from PIL import ExifTags, Image

from tests.integration.toolsvc.media import (
    BLUE,
    GREEN,
    RED,
    brightness,
    image_file,
    quarters,
    video_file,
)
from tests.support.pictures import call, look, near, png, shown
from tests.support.trajectory import Trajectory
from toolsvc.host.host import Host
from toolsvc.tools.image.image_tool import ImageOptions, ImageTool
from toolsvc.types import Media
from toolwright.types import ToolErrorKind

WORKER_MIB = 512
pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[Host]:
    options = ImageOptions(workers=1, long_side=512, memory_mib=WORKER_MIB)
    async with Host([ImageTool(options)]) as running:
        yield running


@pytest.fixture
def trajectory(host: Host) -> Callable[..., Trajectory]:
    """With these media as the task's."""

    def make(*media: Media) -> Trajectory:
        return Trajectory(host, "image", media=media)

    return make


@pytest.mark.parametrize(
    ("kind", "result"),
    [("PNG", "PNG"), ("GIF", "PNG"), ("BMP", "PNG"), ("JPEG", "JPEG"), ("WEBP", "JPEG")],
)
async def test_formats(trajectory: Callable[..., Trajectory], kind: str, result: str) -> None:
    media = Media(media_type="image/x", data=image_file(quarters(), kind))
    image = await look(trajectory(media))
    assert image.format == result
    assert near(image, (10, 10), RED)
    assert near(image, (390, 10), GREEN)
    assert near(image, (10, 190), BLUE)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16"])
async def test_modes(trajectory: Callable[..., Trajectory], mode: str) -> None:
    if mode == "I;16":
        made = Image.new("I;16", (100, 100), 0x8000)
        grey = 128
    else:
        made, grey = Image.new("RGB", (100, 100), "white").convert(mode), 255
    image = await look(trajectory(png(made)))
    assert near(image, (50, 50), (grey,) * 3)


async def test_printers_colours_are_shown_and_what_is_transparent_lies_on_white(
    trajectory: Callable[..., Trajectory],
) -> None:
    data = image_file(Image.new("CMYK", (60, 60), (0, 255, 255, 0)), "JPEG")
    image = await look(trajectory(Media(media_type="image/jpeg", data=data)))
    assert near(image, (30, 30), (254, 0, 0))
    made = Image.new("RGBA", (100, 100), (0, 0, 0, 0))
    made.paste((0, 0, 255, 255), (0, 0, 50, 100))
    image = await look(trajectory(png(made)))
    assert image.getpixel((75, 50)) == (255, 255, 255)
    assert image.getpixel((25, 50)) == (0, 0, 255)


async def test_boxes_are_of_the_image_as_it_is_shown(
    trajectory: Callable[..., Trajectory],
) -> None:
    """A photo that was taken upright: its file lies on its side."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    lying = quarters().rotate(90, expand=True)
    data = image_file(lying, "JPEG", exif=exif)
    session = trajectory(Media(media_type="image/jpeg", data=data))
    image = await look(session)
    assert image.size == (400, 200)
    assert near(image, (10, 10), RED)
    assert not image.getexif()
    assert shown(await session.act(call("crop_image", bbox_2d=[350, 0, 400, 50])))
    assert not (await session.act(call("crop_image", bbox_2d=[0, 0, 50, 201]))).valid


async def test_results_are_no_larger_than_the_limit_and_no_smaller_than_a_patch(
    trajectory: Callable[..., Trajectory],
) -> None:
    session = trajectory(png(quarters(2000, 1000)), png(quarters(10, 20)), png(quarters(4000, 4)))
    assert (await look(session)).size == (512, 256)
    assert (await look(session, target_image=2)).size == (28, 56)
    assert not (await session.act(call("rotate_image", angle=0, target_image=3))).valid
    (turned,) = shown(await session.act(call("rotate_image", angle=45)))
    assert max(turned.size) == 512
    assert turned.getpixel((1, 1)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("kind", "codec"),
    [
        ("mp4", "libx264"),
        ("mov", "mpeg4"),
        ("matroska", "libx265"),
        ("webm", "libvpx-vp9"),
        ("avi", "mjpeg"),
    ],
)
async def test_frames_are_those_that_were_asked_for(
    trajectory: Callable[..., Trajectory], kind: str, codec: str
) -> None:
    """Across key frames, in any order, one of them twice."""
    data = video_file(kind, codec, size=(160, 120))
    session = trajectory(Media(media_type="video/x", data=data))
    wanted = [24, 10, 11, 12, 1, 11]
    frames = shown(await session.act(call("select_frames", target_frames=wanted)))
    for number, frame in zip(wanted, frames, strict=True):
        found = frame.convert("L").getpixel((80, 60))
        assert isinstance(found, int)
        assert abs(found - brightness(number)) < 4


async def test_a_session_is_bounded() -> None:
    async with Host([ImageTool(ImageOptions(workers=1, images=3, session_mib=1))]) as host:
        session = Trajectory(host, "image", media=(png(quarters()),))
        frames = await session.act(call("select_frames", target_frames=[1, 1, 1]))
        assert frames.error.kind is ToolErrorKind.LIMIT
        for _ in range(2):
            assert await look(session)
        full = await session.act(call("rotate_image", angle=0))
        assert full.error.kind is ToolErrorKind.LIMIT
        noise = Trajectory(host, "image", media=(png(Image.effect_noise((800, 800), 90)),))
        large = await noise.act(call("rotate_image", angle=0))
        assert "1048576 bytes" in large.error.message
