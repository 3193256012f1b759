"""The parser of images and videos, as `toolsvc.confined` wants one.

Every error that a file causes in its decoders is reported as `UnusableFile`; only lack of memory
ends the process.
"""

from __future__ import annotations

from typing import BinaryIO

from toolsvc.tools.image.arguments import Function
from toolsvc.tools.image.decoding import pictures, videos
from toolsvc.tools.image.types import ImageAnswer, ImageLimits, UnusableFile
from toolsvc.tools.image.wire import ImageRequest, pack_answer

_SMALL = ImageLimits(
    pixels=10_000,
    file_bytes=1 << 20,
    long_side=64,
    padding=0.1,
    sampled_frames=None,
    encoding="auto",
)
"""Limits of the rehearsal."""


def rehearse() -> None:
    pictures.rehearse(_SMALL)
    videos.rehearse(_SMALL)


def work(request: str, file: BinaryIO) -> bytes:
    """`request`: an `ImageRequest`; answers as `wire.pack_answer`."""
    asked = ImageRequest.model_validate_json(request)
    arguments, limits = asked.arguments, asked.limits
    try:
        if arguments.function is Function.SELECT_FRAMES:
            found = videos.frames_of(arguments.target_frames or (), file, limits)
        else:
            found = [pictures.work_on_picture(arguments, file, limits)]
        answer = ImageAnswer(found)
    except UnusableFile as error:
        answer = ImageAnswer([], error)
    return pack_answer(answer)
