"""Image files to pixels, as in the samplers' processor.

The engine has made the file upright and opaque (`toolwright.reading.pixels`). SGLang opens it with
Pillow and converts it to RGB without EXIF. Then transformers' image processor reads it, with the
policy folder's preprocessor_config.json. This is that processor on Pillow, which samplers use with
`--image-processor-backend pil`. Their default, torchvision, gives other values for a resized image:
measured on CPUs, up to 2 of 255 in a smooth picture and up to 22 in noise.

Importing this module imports transformers' image processing.
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
from learner.vision.placed import Image
from toolwright.reading.pixels import FORMATS, MOST_PIXELS


class Pixels:
    """The image processor of one policy folder."""

    def __init__(self, folder: Path) -> None:
        """Raises ModelError if the folder has no readable preprocessor_config.json."""
        try:
            self._processor = Qwen2VLImageProcessorPil.from_pretrained(folder)
        except (OSError, ValueError, TypeError) as error:
            raise ModelError(
                f"{folder} has no readable preprocessor_config.json ({error}): copy the file that "
                "came with the policy; the samplers read it too"
            ) from error

    @property
    def side(self) -> int:
        """Width and height of a token, in pixels."""
        return int(self._processor.patch_size * self._processor.merge_size)

    def image(self, sha256: str, data: bytes) -> Image:
        """The file with its grid; reads only its header. Raises DataError if it is not an image."""
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
        """Like `image`, and decodes the whole file once.

        Raises DataError if it cannot be decoded, or has more than MOST_PIXELS. This process decodes
        bytes from strangers: the samplers have decoded them with the same library, FORMATS allows
        five decoders, and the size is checked first.
        """
        opened = self._open(sha256, data)
        width, height = opened.size
        if width * height > MOST_PIXELS:
            raise DataError(
                f"image {sha256[:12]} has {width} x {height} pixels: at most {MOST_PIXELS} are read"
            )
        try:
            opened.convert("RGB")
            return self.image(sha256, data)
        except Exception as error:
            raise DataError(f"image {sha256[:12]} cannot be read ({error})") from error

    def __call__(self, images: Sequence[Image]) -> tuple[torch.Tensor, torch.Tensor]:
        """([patches, values of a patch] float32, [images, 3] int64 grids: time, height, width).

        Grids count patches. Raises DataError for a truncated file.
        """
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
                f"{sha256[:12]} is not an image of {', '.join(FORMATS)} ({error})"
            ) from error
