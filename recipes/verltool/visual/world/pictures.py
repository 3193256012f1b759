"""The pictures of the demonstration: four things of four colours, each with a small number on it.

A picture is SIDE pixels wide and high, in four fields of equal size. What stands in a field is
drawn as its kind says (a box on a shelf, a bar of a chart, a framed paragraph of a page); the
number on it has two digits, FIGURE pixels high. A policy whose image processor makes 56 x 56 pixels
of the picture sees the colours, while a digit is three pixels high there. In the part that a
demonstration cuts out it is ten, and each of the two is in a patch of the tower (PATCH) of its own.

Equal scenes have equal bytes, with one version of Pillow. It knows no question and no split.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from PIL import Image, ImageDraw, ImageFont

Kind = Literal["shelf", "chart", "page"]
Box = tuple[int, int, int, int]
"""Left, top, right, bottom, in pixels."""

SIDE, FIELD = 400, 200
PATCH = 28
"""Pixels of the picture in a patch of the vision tower, in a part that is cut out."""
FIGURE = 28
"""Size of the font, whose digits are 20 pixels high."""
_PLATE = 68
"""From a field's corner to that of its number's plate, to the right and down."""
KINDS: tuple[Kind, ...] = ("shelf", "chart", "page")
COLOURS: Mapping[str, tuple[int, int, int]] = {
    "red": (214, 40, 40),
    "green": (44, 150, 70),
    "blue": (48, 90, 210),
    "yellow": (240, 200, 40),
    "purple": (130, 60, 170),
    "brown": (125, 80, 40),
}
PLACES = ("top left", "top right", "bottom left", "bottom right")
"""Places of the fields, in their order."""
_PAPER, _WOOD, _INK = (250, 249, 245), (196, 168, 128), (20, 20, 24)
_WALLS = ((250, 249, 245), (205, 212, 225), (225, 205, 190), (165, 165, 165))
"""Colours of the walls of the fields, in their order, so that a thing's place can be seen at the
thing: from rotary positions, which differ by one between neighbours, a tiny policy is slow to learn
it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a picture shows, field by field."""

    kind: Kind
    colours: tuple[str, str, str, str]
    numbers: tuple[int, int, int, int]
    """Numbers of two digits."""

    def field_of(self, colour: str) -> int:
        """Where the thing of that colour stands. Raises ValueError without one."""
        return self.colours.index(colour)


def number_box(field: int) -> Box:
    """The plate with a field's number: what has to be in view for it to be read."""
    x, y = field % 2 * FIELD + _PLATE, field // 2 * FIELD + _PLATE
    return x, y, x + 2 * PATCH, y + PATCH


def draw(scene: Scene) -> bytes:
    """A PNG."""
    image = Image.new("RGB", (SIDE, SIDE), _PAPER)
    pen = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=FIGURE)
    for field, (colour, number) in enumerate(zip(scene.colours, scene.numbers, strict=True)):
        x, y = field % 2 * FIELD, field // 2 * FIELD
        pen.rectangle((x, y, x + FIELD, y + FIELD), fill=_WALLS[field])
        _thing(pen, scene.kind, x, y, COLOURS[colour])
        plate = number_box(field)
        pen.rectangle(plate, fill=_PAPER)
        for digit, left in zip(str(number), (plate[0], plate[0] + PATCH), strict=True):
            middle = left + PATCH / 2, plate[1] + PATCH / 2
            pen.text(middle, digit, fill=_INK, font=font, anchor="mm", stroke_width=1)
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()


def _thing(
    pen: ImageDraw.ImageDraw, kind: Kind, x: int, y: int, colour: tuple[int, int, int]
) -> None:
    """What stands in the field whose corner is (x, y)."""
    if kind == "shelf":
        pen.rectangle((x, y + 180, x + FIELD, y + FIELD), fill=_WOOD)
        pen.rectangle((x + 30, y + 30, x + 170, y + 180), fill=colour)
    elif kind == "chart":
        pen.line((x + 12, y + 8, x + 12, y + 190, x + 196, y + 190), fill=_INK, width=4)
        pen.rectangle((x + 50, y + 20, x + 150, y + 188), fill=colour)
    else:
        pen.rectangle((x + 14, y + 14, x + 186, y + 186), outline=colour, width=26)
        for line in range(56, 150, 14):
            pen.line((x + 52, y + line, x + 148, y + line), fill=(170, 170, 170), width=4)
