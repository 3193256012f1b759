"""Charts as inline SVG: lines with error bars, and one stacked bar.

Colours and fonts come from the page's style sheet by class names. So a chart follows the reader's
light or dark setting. Everything here is pure: numbers in, markup out. Names may be hostile, and
are escaped here. Every number is drawn on its chart, however large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from toolwright.page.text import text

LARGEST = 1e307
"""Largest number that is drawn: differences of such numbers are finite."""
DOTS = 60
"""Most points of a line with a tooltip."""
LETTER, LABEL_MARGIN = 7.2, 14  # pixels that the name of a part of the bar needs
BAR_WIDTH, BAR_HEIGHT = 760, 56

_At = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of a chart in its own units; the page scales it. name: a class of the style sheet."""

    name: str
    width: int
    height: int
    left: int
    top: int = 14
    right: int = 14
    bottom: int = 40
    across: int = 8
    """About so many names below the axis."""
    up: int = 5


WIDE = Size(name="wide", width=860, height=330, left=66)
SMALL = Size(name="small", width=430, height=230, left=70, across=5, up=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A measured point; `error` is half of its bar. `says`: its tooltip, if not the default."""

    x: float
    y: float
    error: float = 0.0
    says: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve. style: classes of the style sheet. dots: visible with error bars, on hover, or
    absent."""

    name: str
    style: str
    points: tuple[Point, ...]
    dots: Literal["seen", "hover", "none"] = "hover"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A share of a stacked bar, with its value as text."""

    name: str
    style: str
    value: float
    text: str


def line_chart(
    lines: Sequence[Line],
    *,
    x_name: str,
    y_name: str,
    low: float | None = None,
    high: float | None = None,
    first: float | None = None,
    last: float | None = None,
    log: bool = False,
    log_x: bool = False,
    labels: Sequence[str] = (),
    size: Size = WIDE,
) -> str:
    """Curves over each other, as SVG.

    low, high: ends of the y axis; first, last: ends of the x axis; None = as the points need. log,
    log_x: the y axis, the x axis in powers of ten, without values of 0 and below. labels: names
    below 0, 1, 2 ... instead of numbers.
    """
    if log:
        lines = [_logarithms(line) for line in lines]
    if log_x:
        lines = [_logarithms_x(line) for line in lines]
    points = [point for line in lines for point in line.points]
    x_low, x_high = _range((p.x for p in points), first, last)
    ends = (y for p in points for y in (p.y - p.error, p.y + p.error))
    y_low, y_high = _range(ends, low, high)
    at = _scale(size, x_low, x_high, y_low, y_high)
    whole = all(p.x == int(p.x) for p in points if abs(p.x) < 1e15)
    x_ticks = ticks(x_low, x_high, size.across)
    if whole or log_x:
        x_ticks = [x for x in x_ticks if abs(x - round(x)) < 1e-9] or [x_low]
    y_ticks = ticks(y_low, y_high, size.up)
    if log:
        y_ticks = [y for y in y_ticks if abs(y - round(y)) < 1e-9] or [y_low]
    named = [(float(x), name) for x, name in enumerate(labels)]
    named = named or [(x, _power(x) if log_x else f"{x:.6g}") for x in x_ticks]
    parts = [*_frame(size, x_name, y_name), *_grid(size, at, named, y_ticks, log=log)]
    for line in lines:
        parts.append(_curve(line, at))
        if line.dots == "seen":
            parts += [_bar(line, point, at) for point in line.points if point.error]
    for line in lines:
        parts += _dots(line, x_name, at, log=log)
    return "\n".join([*parts, "</svg>"])


def stacked_bar(parts: Sequence[Part]) -> str:
    """Shares of a whole side by side; parts too narrow for their name have it in the tooltip."""
    whole = math.fsum(part.value for part in parts) or 1.0
    out = [
        f'<svg class="bar" viewBox="0 0 {BAR_WIDTH} {BAR_HEIGHT}" role="img" aria-label="shares">'
    ]
    left = 0.0
    for part in parts:
        width = BAR_WIDTH * part.value / whole
        out.append(
            f"<g><title>{text(part.name)}: {text(part.text)}</title>"
            f'<rect class="part {part.style}" x="{left:.1f}" y="0" width="{max(0, width - 2):.1f}" '
            f'height="{BAR_HEIGHT}" rx="4"/>'
        )
        if width >= LETTER * max(len(part.name), len(part.text)) + LABEL_MARGIN:
            middle = left + width / 2
            out.append(
                f'<text class="on-part" x="{middle:.1f}" y="24" text-anchor="middle">'
                f"{text(part.name)}</text>"
                f'<text class="on-part few" x="{middle:.1f}" y="43" text-anchor="middle">'
                f"{text(part.text)}</text>"
            )
        out.append("</g>")
        left += width
    return "\n".join([*out, "</svg>"])


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers from `low` to `high`."""
    size = (high - low) / about
    power = 10.0 ** math.floor(math.log10(size)) if size > 0 else 0.0
    if not power:
        return [low]
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= size * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _logarithms(line: Line) -> Line:
    points = (
        Point(x=p.x, y=math.log10(p.y), says=p.says or f"{p.x:g}: {_number(p.y)}")
        for p in line.points
        if p.y > 0
    )
    return replace(line, points=tuple(points))


def _logarithms_x(line: Line) -> Line:
    points = (
        replace(p, x=math.log10(p.x), says=p.says or f"{p.x:g}: {_number(p.y)}")
        for p in line.points
        if p.x > 0
    )
    return replace(line, points=tuple(points))


def _range(values: Iterable[float], low: float | None, high: float | None) -> tuple[float, float]:
    """Two different numbers around all values; a value beyond LARGEST is drawn at the edge."""
    values = list(values) or [0.0]
    least = max(min(values), -LARGEST) if low is None else low
    most = min(max(values), LARGEST) if high is None else high
    if most > least:
        return least, most
    room = abs(least) / 2 or 0.5
    if low is not None:
        return least, least + 2 * room
    return (most - 2 * room, most) if high is not None else (least - room, least + room)


def _scale(size: Size, x_low: float, x_high: float, y_low: float, y_high: float) -> _At:
    right, bottom = size.width - size.right, size.height - size.bottom

    def at(x: float, y: float) -> tuple[float, float]:
        across, up = _share(x, x_low, x_high), _share(y, y_low, y_high)
        return (
            round(size.left + (right - size.left) * across, 1),
            round(bottom - (bottom - size.top) * up, 1),
        )

    return at


def _share(value: float, low: float, high: float) -> float:
    """Position of a value between two others, 0 to 1."""
    return (min(max(value, low), high) - low) / (high - low)


def _frame(size: Size, x_name: str, y_name: str) -> list[str]:
    middle = (size.top + size.height - size.bottom) / 2
    return [
        f'<svg class="{size.name}" viewBox="0 0 {size.width} {size.height}" role="img" '
        f'aria-label="{text(y_name)}">',
        f'<text class="axis" x="{(size.left + size.width - size.right) / 2}" '
        f'y="{size.height - 5}" text-anchor="middle">{text(x_name)}</text>',
        f'<text class="axis" x="11" y="{middle}" text-anchor="middle" '
        f'transform="rotate(-90 11 {middle})">{text(y_name)}</text>',
    ]


def _grid(
    size: Size,
    at: _At,
    below: Sequence[tuple[float, str]],
    y_ticks: Sequence[float],
    *,
    log: bool,
) -> list[str]:
    out = []
    right, bottom = size.width - size.right, size.height - size.bottom
    for y in y_ticks:
        _, height = at(0, y)
        label = _power(y) if log else f"{y:.5g}"
        out.append(
            f'<line class="grid" x1="{size.left}" x2="{right}" y1="{height}" y2="{height}"/>'
        )
        out.append(
            f'<text class="tick" x="{size.left - 7}" y="{height + 4}" text-anchor="end">'
            f"{label}</text>"
        )
    for x, label in below:
        across, _ = at(x, 0)
        out.append(
            f'<text class="tick" x="{across}" y="{bottom + 17}" text-anchor="middle">'
            f"{text(label)}</text>"
        )
    return out


def _number(value: float) -> str:
    """A value in a tooltip of an axis in powers of ten."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _power(exponent: float) -> str:
    """The label of 10 ** exponent, written out where there is room for it beside an axis. A whole
    exponent may be beyond the numbers of a float."""
    whole = round(exponent)
    if abs(exponent - whole) >= 1e-9:
        return f"{10.0**exponent:.1e}"
    if -3 <= whole <= 6:
        return f"{10**whole:,}"
    return f"1e{whole:+03d}"


def _curve(line: Line, at: _At) -> str:
    path = " ".join("{},{}".format(*at(p.x, p.y)) for p in line.points)
    return f'<polyline class="line {line.style}" points="{path}"/>'


def _bar(line: Line, point: Point, at: _At) -> str:
    (x, high), (_, low) = at(point.x, point.y + point.error), at(point.x, point.y - point.error)
    return f'<line class="error {line.style}" x1="{x}" x2="{x}" y1="{low}" y2="{high}"/>'


def _dots(line: Line, x_name: str, at: _At, *, log: bool) -> list[str]:
    if line.dots == "none":
        return []
    kind, radius = ("dot", 3.4) if line.dots == "seen" else ("spot", 6)
    every = 1 if line.dots == "seen" else max(1, math.ceil(len(line.points) / DOTS))
    out = []
    for place in range(len(line.points) - 1, -1, -every):
        point = line.points[place]
        x, y = at(point.x, point.y)
        error = f" ± {point.error:.2g}" if point.error else ""
        says = point.says or f"{point.x:.6g}: {point.y:.4g}{error}"
        out.append(
            f'<circle class="{kind} {line.style}" cx="{x}" cy="{y}" r="{radius}">'
            f"<title>{text(line.name)}, {text(x_name)} {text(says)}</title></circle>"
        )
    # A single point has no line: it is always visible.
    if len(line.points) == 1 and line.dots == "hover":
        x, y = at(line.points[0].x, line.points[0].y)
        out.insert(0, f'<circle class="dot {line.style}" cx="{x}" cy="{y}" r="3"/>')
    return out
