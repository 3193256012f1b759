"""The vocabulary of the service and its decoding processes.

Sizes of pictures are (width, height) in pixels; sizes of files are in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

STRICT = ConfigDict(extra="forbid")
"""As in `plugin.tool`, which decoding processes do not import: each import costs every process."""

Size = tuple[int, int]
Encoding = Literal["auto", "png", "jpeg"]

MOST_FRAMES = 8
"""Maximum frames of one selection: Pixel-Reasoner's and VerlTool's bound."""
SHORT_SIDE = 28
"""Minimum side of a result, in pixels: a patch of Qwen2-VL and its successors, which refuse
less."""


class ImageLimits(BaseModel):
    """The operator's limits, as a decoding process gets them."""

    model_config = STRICT

    pixels: int
    """Maximum pixels of one image, checked before it is decoded."""
    file_bytes: int
    """Maximum size of one image's file, in bytes."""
    long_side: int
    """Maximum longer side of a result, in pixels."""
    padding: float
    """Padding of a box: share of the image's side that is added on each side."""
    sampled_frames: int | None
    """A video is numbered as this many evenly spaced frames; None = all its frames."""
    encoding: Encoding


class ImageFault(StrEnum):
    """Why there is no result; the policy reads each of these."""

    REQUEST = "request"
    """The request does not fit the file: a box outside the image, a missing frame."""
    FILE = "file"
    """The file is broken, or of an unsupported kind."""
    LIMIT = "limit"
    """The file is larger than the operator allows."""
    MEMORY = "memory"
    """The process ran out of memory."""
    TIME = "time"
    """Decoding took longer than a call may."""
    CRASH = "crash"
    """The decoder crashed, or gave an invalid answer."""


class UnusableFile(Exception):
    """No result, and why."""

    def __init__(self, fault: ImageFault, reason: str) -> None:
        super().__init__(reason)
        self.fault = fault
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A result: an encoded image, and a note for the policy beside its size."""

    data: bytes
    media_type: str
    size: Size
    note: str = ""


class ImageAnswer(NamedTuple):
    """Answer of a decoding process: pictures, or a fault."""

    pictures: list[Picture]
    unusable: UnusableFile | None = None
