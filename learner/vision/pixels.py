"""Image files to pixels, as the samplers' processor makes them.

The engine has made the file upright and opaque (`toolwright.reading.pixels`). SGLang opens it with
Pillow, makes it RGB without a look at EXIF, and hands it to transformers' image processor, set by
the policy folder's preprocessor_config.json. This is that processor on Pillow, which samplers use
with `--image-processor-backend pil`. On torchvision, their default, values of a resized image are
other ones: measured on CPUs, by up to 2 of 255 in a smooth picture and by up to 22 in noise.

Importing this imports transformers' image processing.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image as Pillow
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
    Qwen2VLImageProcessorPil,
    smart_resize,
)

from learner.errors import DataError, ModelError
from learner.vision.shown import Image
from toolwright.reading.pixels import FORMATS, MOST_PIXELS


class Pixels:
    """The image processor of one policy folder."""

    def __init__(self, folder: Path) -> None:
        """ModelError without a preprocessor_config.json."""
        try:
            self._processor = Qwen2VLImageProcessorPil.from_pretrained(folder)
        except (OSError, ValueError, TypeError) as error:
            raise ModelError(
                f"{folder} has no preprocessor_config.json that can be read ({error}): copy the "
                "one that came with the policy, the samplers read it too"
            ) from error

    @property
    def side(self) -> int:
        """Pixels of a token, across and down."""
        return int(self._processor.patch_size * self._processor.merge_size)

    def image(self, sha256: str, data: bytes) -> Image:
        """The file with its grid, of which only the header is read. DataError for no image."""
        width, height = self._open(sha256, data).size
        size = self._processor.size
        high, wide = smart_resize(
            height,
            width,
            factor=self.side,
            min_pixels=size["shortest_edge"],
            max_pixels=size["longest_edge"],
        )
        return Image(sha256=sha256, data=data, grid=(high // self.side, wide // self.side))

    def whole(self, sha256: str, data: bytes) -> Image:
        """The same of a file that is decoded once, to its last pixel. DataError where it cannot
        be, or would be larger than MOST_PIXELS.

        Strangers' bytes are decoded in this process: the samplers have decoded the same ones by the
        same library, FORMATS keeps it to five decoders, and their size is bounded before.
        """
        opened = self._open(sha256, data)
        width, height = opened.size
        if width * height > MOST_PIXELS:
            raise DataError(f"image {sha256[:12]} has {width} x {height} pixels: too many")
        try:
            opened.convert("RGB")
            return self.image(sha256, data)
        except Exception as error:
            raise DataError(f"image {sha256[:12]} cannot be read ({error})") from error

    def __call__(self, images: Sequence[Image]) -> tuple[torch.Tensor, torch.Tensor]:
        """([patches, values of a patch] float32 of all images, [images, 3] int64 their grids in
        patches: time, height, width). DataError for a file that is cut."""
        opened = []
        for image in images:
            try:
                opened.append(self._open(image.sha256, image.data).convert("RGB"))
            except (OSError, SyntaxError) as error:
                raise DataError(f"image {image.sha256[:12]} cannot be read ({error})") from error
        done = self._processor(images=opened, return_tensors="np")
        return (
            torch.from_numpy(np.ascontiguousarray(done["pixel_values"], dtype=np.float32)),
            torch.from_numpy(done["image_grid_thw"].astype(np.int64)),
        )

    @staticmethod
    def _open(sha256: str, data: bytes) -> Pillow.Image:
        try:
            return Pillow.open(io.BytesIO(data), formats=FORMATS)
        except (OSError, SyntaxError, Pillow.DecompressionBombError) as error:
            raise DataError(
                f"{sha256[:12]} is no image of {', '.join(FORMATS)} ({error})"
            ) from error
