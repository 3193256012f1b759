"""The words that the service and its decoding processes share.

Sizes of pictures are (width, height) in pixels, of files bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

STRICT = ConfigDict(extra="forbid")
"""As in `plugin.tool`, which decoding processes do without: each pays for all that is imported."""

Size = tuple[int, int]
Encoding = Literal["auto", "png", "jpeg"]

MOST_FRAMES = 8
"""Of one selection: Pixel-Reasoner's and VerlTool's bound."""
SHORT_SIDE = 28
"""No result is narrower: a patch of Qwen2-VL and its successors, which refuse less."""


class ImageLimits(BaseModel):
    """What an operator allows, as a decoding process is told it."""

    model_config = STRICT

    pixels: int
    """Of one image, before it is decoded."""
    file_bytes: int
    """Of one image's file."""
    long_side: int
    """Of a result."""
    padding: float
    """Of a box: share of the image's side that is added on each side of it."""
    sampled_frames: int | None
    """A video is numbered as so many frames, evenly spaced; None = as those that it has."""
    encoding: Encoding


class ImageFault(StrEnum):
    """Why there is no result; each is something that the policy reads."""

    REQUEST = "request"
    """It does not fit the image: a box that is outside, a frame that is not there."""
    FILE = "file"
    """It is broken, or of a kind that is not decoded here."""
    LIMIT = "limit"
    """It is larger than the operator allows."""
    MEMORY = "memory"
    """The process had not enough."""
    TIME = "time"
    """It took longer than a call may."""
    CRASH = "crash"
    """It made its decoder crash, or answer what is none."""


class UnusableFile(Exception):
    """No result, and why."""

    def __init__(self, fault: ImageFault, reason: str) -> None:
        super().__init__(reason)
        self.fault = fault
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A result: an encoded image, and what is to be said of it beside its size."""

    data: bytes
    media_type: str
    size: Size
    note: str = ""


class ImageAnswer(NamedTuple):
    """Of a decoding process: pictures, or why there are none."""

    pictures: list[Picture]
    unusable: UnusableFile | None = None
