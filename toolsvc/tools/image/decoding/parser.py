"""The parser of images and videos, as `toolsvc.confined` wants one.

Whatever a file leads its decoders to is told as `Unusable`; want of memory alone ends the process.
"""

from __future__ import annotations

from typing import BinaryIO

from toolsvc.tools.image.arguments import Function
from toolsvc.tools.image.decoding import pictures, videos
from toolsvc.tools.image.types import Answer, Limits, Unusable
from toolsvc.tools.image.wire import Request, pack_answer

_SMALL = Limits(
    pixels=10_000,
    file_bytes=1 << 20,
    long_side=64,
    padding=0.1,
    sampled_frames=None,
    encoding="auto",
)
"""For what is rehearsed."""


def rehearse() -> None:
    pictures.rehearse(_SMALL)
    videos.rehearse(_SMALL)


def work(request: str, file: BinaryIO) -> bytes:
    """`request`: a `Request`; answers as `wire.pack_answer`."""
    asked = Request.model_validate_json(request)
    arguments, limits = asked.arguments, asked.limits
    try:
        if arguments.function is Function.SELECT_FRAMES:
            found = videos.frames_of(arguments.target_frames or (), file, limits)
        else:
            found = [pictures.work_on_picture(arguments, file, limits)]
        answer = Answer(found)
    except Unusable as error:
        answer = Answer([], error)
    return pack_answer(answer)
