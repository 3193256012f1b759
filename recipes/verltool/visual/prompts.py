"""What the policy is told: how to look closer, and the functions for it as its template shows them.

Words of our own. Names and arguments are those of the image tool (docs/tools/shipped/image.md),
which took them from Pixel-Reasoner and VerlTool.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolwright.text.sections import sections

PROMPTS = sections(Path(__file__).with_name("prompts.txt"))

_IMAGE_NUMBER = {
    "type": "integer",
    "minimum": 1,
    "description": "number of the image, counted from 1; each image that is shown gets the next",
}


def _function(name: str, description: str, **arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = {"type": "object", "properties": arguments, "required": list(arguments)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _box(unit: str, kind: str) -> Mapping[str, Any]:
    return {
        "type": "array",
        "items": {"type": kind},
        "minItems": 4,
        "maxItems": 4,
        "description": f"[left, top, right, bottom], {unit}",
    }


CROPS = (
    _function(
        "crop_image",
        "Shows a part of an image, larger.",
        bbox_2d=_box("in pixels of that image", "number"),
        target_image=_IMAGE_NUMBER,
    ),
    _function(
        "crop_image_normalized",
        "Shows a part of an image, larger, where you know no pixels.",
        bbox_2d=_box("in shares of the image's width and height, from 0 to 1", "number"),
        target_image=_IMAGE_NUMBER,
    ),
)
FRAMES = (
    _function(
        "select_frames",
        "Shows frames of the video.",
        target_frames={
            "type": "array",
            "items": {"type": "integer", "minimum": 1},
            "minItems": 1,
            "maxItems": 8,
            "description": "numbers of the frames, counted from 1; at most 8",
        },
    ),
)
