"""Elements of a chart as SVG: lines with error bars, for the pictures of studies. Pure.

Colours come from the style sheet by class names. Names may be hostile, and are escaped here. Every
number is drawn on its chart, however large. A page of `toolwright.page` draws its plots in the
browser; the pictures of docs/results are files without a script.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from toolwright.page.text import text

LARGEST = 1e307
"""Largest number that is drawn: differences of such numbers are finite."""
WIDTH, HEIGHT, LEFT = 860, 330, 66
"""Size of a chart, and where its x axis begins, in units of the picture."""
_RIGHT, _TOP, _BOTTOM = WIDTH - 40, 14, HEIGHT - 40
"""Edges of the part in which the lines lie."""
_UP = 5
"""About so many ticks of the y axis."""
_At = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A measured point."""

    x: float
    label: str
    """Name of `x`, for the text that a dot shows."""
    y: float
    error: float = 0.0
    """Half of the error bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve. style: classes of the style sheet."""

    name: str
    style: str
    points: tuple[Point, ...]


def line_chart(lines: Sequence[Line], *, x_name: str, y_name: str, labels: Sequence[str]) -> str:
    """Elements of curves over each other, for an SVG of WIDTH and HEIGHT. labels: names below 0,
    1, 2 and so on of the x axis."""
    points = [point for line in lines for point in line.points]
    x_low, x_high = _range(p.x for p in points)
    y_low, y_high = _range(y for p in points for y in (p.y - p.error, p.y + p.error))
    at = _scale(x_low, x_high, y_low, y_high)
    parts = [*_axes(x_name, y_name), *_grid(at, labels, ticks(y_low, y_high, _UP))]
    for line in lines:
        parts.append(_curve(line, at))
        parts += [_bar(line, point, at) for point in line.points if point.error]
    for line in lines:
        parts += _dots(line, x_name, at)
    return "\n".join(parts)


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


def _range(values: Iterable[float]) -> tuple[float, float]:
    """Two different numbers around all values; a value beyond LARGEST is drawn at the edge."""
    values = list(values) or [0.0]
    least, most = max(min(values), -LARGEST), min(max(values), LARGEST)
    if most > least:
        return least, most
    room = abs(least) / 2 or 0.5
    return least - room, least + room


def _scale(x_low: float, x_high: float, y_low: float, y_high: float) -> _At:
    def at(x: float, y: float) -> tuple[float, float]:
        across, up = _share(x, x_low, x_high), _share(y, y_low, y_high)
        return (
            round(LEFT + (_RIGHT - LEFT) * across, 1),
            round(_BOTTOM - (_BOTTOM - _TOP) * up, 1),
        )

    return at


def _share(value: float, low: float, high: float) -> float:
    """Position of a value between two others, 0 to 1."""
    return (min(max(value, low), high) - low) / (high - low)


def _axes(x_name: str, y_name: str) -> list[str]:
    middle = (_TOP + _BOTTOM) / 2
    return [
        f'<text class="axis" x="{(LEFT + _RIGHT) / 2}" y="{HEIGHT - 5}" text-anchor="middle">'
        f"{text(x_name)}</text>",
        f'<text class="axis" x="11" y="{middle}" text-anchor="middle" '
        f'transform="rotate(-90 11 {middle})">{text(y_name)}</text>',
    ]


def _grid(at: _At, labels: Sequence[str], y_ticks: Sequence[float]) -> list[str]:
    out = []
    for y in y_ticks:
        _, height = at(0, y)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{_RIGHT}" y1="{height}" y2="{height}"/>')
        out.append(
            f'<text class="tick" x="{LEFT - 7}" y="{height + 4}" text-anchor="end">{y:.5g}</text>'
        )
    for x, label in enumerate(labels):
        across, _ = at(x, 0)
        out.append(
            f'<text class="tick" x="{across}" y="{_BOTTOM + 17}" text-anchor="middle">'
            f"{text(label)}</text>"
        )
    return out


def _curve(line: Line, at: _At) -> str:
    path = " ".join("{},{}".format(*at(p.x, p.y)) for p in line.points)
    return f'<polyline class="line {line.style}" points="{path}"/>'


def _bar(line: Line, point: Point, at: _At) -> str:
    (x, high), (_, low) = at(point.x, point.y + point.error), at(point.x, point.y - point.error)
    return f'<line class="error {line.style}" x1="{x}" x2="{x}" y1="{low}" y2="{high}"/>'


def _dots(line: Line, x_name: str, at: _At) -> Iterator[str]:
    for point in reversed(line.points):
        x, y = at(point.x, point.y)
        error = f" ± {point.error:.2g}" if point.error else ""
        says = f"{text(line.name)}, {text(x_name)} {text(point.label)}: {point.y:.4g}{error}"
        yield (
            f'<circle class="dot {line.style}" cx="{x}" cy="{y}" r="3.4">'
            f"<title>{says}</title></circle>"
        )
