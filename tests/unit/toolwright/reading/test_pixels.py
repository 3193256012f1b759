"""Images of tasks are upright, 8 bits deep and opaque for policy, tools and learner alike."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image

from engine.core.images.media import read_media
from toolsvc.tools.image.arguments import Function, ImageArguments
from toolsvc.tools.image.decoding.pictures import work_on_picture
from toolsvc.tools.image.types import ImageLimits
from toolwright.reading.pixels import BrokenImage, plain_file

pytestmark = pytest.mark.quick

LIMITS = ImageLimits(
    pixels=10**8,
    file_bytes=1 << 24,
    long_side=1024,
    padding=0.0,
    sampled_frames=None,
    encoding="png",
)
RED, BLUE = (255, 0, 0), (0, 0, 255)


def file_of(image: Image.Image, kind: str = "PNG", orientation: int = 1, **how: Any) -> bytes:
    if orientation != 1:
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        how["exif"] = exif
    out = io.BytesIO()
    image.save(out, kind, **how)
    return out.getvalue()


def halves() -> Image.Image:
    """Left half red, right half blue."""
    image = Image.new("RGB", (64, 32), BLUE)
    image.paste(RED, (0, 0, 32, 32))
    return image


def deep() -> Image.Image:
    return Image.fromarray(np.full((32, 64), 30_000, np.uint16))


def clear() -> Image.Image:
    image = Image.new("RGBA", (64, 32), (0, 0, 0, 0))
    image.paste((255, 0, 0, 255), (0, 0, 32, 32))
    return image


def as_samplers_do(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def as_the_tool_does(data: bytes, size: tuple[int, int]) -> Image.Image:
    asked = ImageArguments(function=Function.CROP_IMAGE, bbox_2d=(0, 0, *size), target_image=1)
    return Image.open(io.BytesIO(work_on_picture(asked, io.BytesIO(data), LIMITS).data))


FILES = {
    **{f"turned {number}": file_of(halves(), orientation=number) for number in range(2, 9)},
    "turned JPEG": file_of(halves(), "JPEG", 6, quality=95),
    "turned WebP": file_of(halves(), "WEBP", 8, lossless=True),
    "16 bits": file_of(deep()),
    "16 bits, turned": file_of(deep(), orientation=6),
    "transparent": file_of(clear()),
    "transparent palette": file_of(clear().convert("P"), "GIF", transparency=0),
    "transparent WebP": file_of(clear(), "WEBP", lossless=True),
    "plain": file_of(halves()),
    "opaque alpha": file_of(halves().convert("RGBA")),
    "grey": file_of(halves().convert("L")),
}


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_policy_tool_and_learner_see_the_same(data: bytes) -> None:
    media = read_media(data)
    policy = as_samplers_do(media.data)
    tool = as_the_tool_does(media.data, policy.size)
    assert policy.size == tool.size
    assert np.array_equal(np.asarray(policy), np.asarray(tool))
    if not data.startswith(b"\xff\xd8"):  # what is lossy is written once more
        alone = as_the_tool_does(data, policy.size)
        assert np.array_equal(np.asarray(policy), np.asarray(alone))


def test_a_photo_stands_upright() -> None:
    media = read_media(FILES["turned 6"])
    image = as_samplers_do(media.data)
    assert image.size == (32, 64)
    assert (image.getpixel((16, 8)), image.getpixel((16, 56))) == (RED, BLUE)
    assert media.blob.media_type == "image/png"
    assert read_media(FILES["turned JPEG"]).blob.media_type == "image/jpeg"


def test_deep_and_clear_pixels_are_what_a_viewer_shows() -> None:
    assert as_samplers_do(read_media(FILES["16 bits"]).data).getpixel((0, 0)) == (117, 117, 117)
    assert as_samplers_do(read_media(FILES["transparent"]).data).getpixel((60, 0)) == (255,) * 3


@pytest.mark.parametrize("name", ["plain", "opaque alpha", "grey"])
def test_a_plain_file_stays_as_it_is(name: str) -> None:
    assert read_media(FILES[name]).data is FILES[name]


def test_of_one_file_comes_one_name() -> None:
    once, again = read_media(FILES["turned 6"]), read_media(FILES["turned 6"])
    assert once.blob == again.blob
    assert read_media(once.data).data is once.data


def test_what_is_not_an_image_is_left_to_its_readers() -> None:
    for data in (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff and no more", b"BM", b""):
        assert plain_file(data) is data


def test_a_cut_photo_is_refused_by_name(tmp_path: Path) -> None:
    photo = tmp_path / "photo.jpg"
    data = file_of(Image.effect_noise((256, 256), 80).convert("RGB"), "JPEG", 6)
    photo.write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"photo\.jpg: the pixels of a JPEG cannot be read"):
        read_media(photo)
    with pytest.raises(BrokenImage):
        plain_file(data[: len(data) // 2])
