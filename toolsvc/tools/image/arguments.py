"""What the policy may ask for: one function, by name, and what that function needs.

The names and arguments of the first four are those of Pixel-Reasoner and of VerlTool's
`pixel_reasoner` tool.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator

from toolsvc.tools.image.types import MOST_FRAMES, STRICT


class Function(StrEnum):
    ZOOM_IN = "zoom_in"
    """Another name of `crop_image`."""
    CROP_IMAGE = "crop_image"
    CROP_IMAGE_NORMALIZED = "crop_image_normalized"
    SELECT_FRAMES = "select_frames"
    RESIZE_IMAGE = "resize_image"
    ROTATE_IMAGE = "rotate_image"


CROPS = (Function.ZOOM_IN, Function.CROP_IMAGE, Function.CROP_IMAGE_NORMALIZED)

_NEEDED = {
    **dict.fromkeys(CROPS, ("bbox_2d",)),
    Function.SELECT_FRAMES: ("target_frames",),
    Function.RESIZE_IMAGE: (),
    Function.ROTATE_IMAGE: ("angle",),
}

Coordinate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Side = Annotated[int, Field(ge=1, le=65_535)]
Number = Annotated[int, Field(ge=1)]
"""Images, videos and frames are counted from 1."""


class ImageArguments(BaseModel):
    """`function`, and what it needs."""

    model_config = STRICT

    function: Function = Field(description="what to do")
    target_image: Number = Field(default=1, description="number of the image")
    bbox_2d: tuple[Coordinate, Coordinate, Coordinate, Coordinate] | None = Field(
        default=None, description="cut out: left, top, right, bottom"
    )
    target_frames: Annotated[list[Number], Field(min_length=1, max_length=MOST_FRAMES)] | None = (
        Field(default=None, description="select_frames: numbers of the frames")
    )
    target_video: Number = Field(default=1, description="select_frames: number of the video")
    width: Side | None = Field(default=None, description="resize_image: pixels")
    height: Side | None = Field(default=None, description="resize_image: pixels")
    angle: float | None = Field(
        default=None, ge=-360, le=360, allow_inf_nan=False, description="rotate_image: clockwise"
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        missing = [name for name in _NEEDED[self.function] if getattr(self, name) is None]
        if missing:
            raise ValueError(f"{self.function} needs {', '.join(missing)}")
        if self.function is Function.RESIZE_IMAGE and self.width is self.height is None:
            raise ValueError(f"{self.function} needs width, height, or both")
        if self.bbox_2d is not None and self.function in CROPS:
            left, top, right, bottom = self.bbox_2d
            if not (left < right and top < bottom):
                raise ValueError(
                    "bbox_2d is [left, top, right, bottom], with left < right and top < bottom"
                )
            if self.normalized and max(right, bottom) > 1:
                raise ValueError("a normalised bbox_2d has numbers from 0 to 1")
        return self

    @property
    def normalized(self) -> bool:
        """Whether the box is in shares of the image's sides. One without any number above 1 is,
        whatever the function, as in VerlTool: in pixels it would be a single one."""
        return self.function is Function.CROP_IMAGE_NORMALIZED or (
            self.bbox_2d is not None and max(self.bbox_2d) <= 1
        )
