"""Requests to the image tool, and what its answers show."""

import io
import json
from typing import Any

from PIL import Image

from tests.integration.toolsvc.media import (
    image_file,
)
from tests.support.trajectory import Trajectory
from toolsvc.types import Media, Result


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def near(image: Image.Image, at: tuple[int, int], colour: tuple[int, int, int]) -> bool:
    """But for what JPEG and video lose."""
    found = image.convert("RGB").getpixel(at)
    assert isinstance(found, tuple)
    return all(abs(one - other) <= 12 for one, other in zip(found, colour, strict=True))


def png(image: Image.Image) -> Media:
    return Media(media_type="image/png", data=image_file(image, "PNG"))


def shown(result: Result) -> list[Image.Image]:
    assert result.error is None, result
    media = [part for part in result.observation if isinstance(part, Media)]
    return [Image.open(io.BytesIO(part.data)) for part in media]


async def look(session: Trajectory, **arguments: Any) -> Image.Image:
    (image,) = shown(await session.act(call("zoom_in", bbox_2d=[0, 0, 1, 1], **arguments)))
    assert image.mode == "RGB"
    return image
