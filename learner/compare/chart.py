"""One chart as inline SVG: curves of several runs, each dot with its values as a tooltip. Pure.

Colours are classes `r0`, `r1`, ... of the page's style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from learner.compare.curves import Curve

WIDTH, HEIGHT = 520, 250
LEFT, RIGHT, TOP, BOTTOM = 64, 10, 10, 36
DOTS = 60
"""Places of a curve that can be pointed at."""
LARGEST = 1e307
"""Differences of such numbers are numbers."""

At = Callable[[float, float], tuple[float, float]]


def chart(curves: Sequence[Curve], labels: Sequence[str], *, x_name: str, title: str) -> str:
    """`labels`: the runs' names, already escaped; `title` too."""
    drawn = [point for curve in curves for point in (*curve.raw, *curve.smooth)]
    x_low, x_high = _range([x for x, _ in drawn])
    ends = [y for curve in curves for _, low, high in curve.bars for y in (low, high)]
    y_low, y_high = _range([*(y for _, y in drawn), *ends])
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        across, up = _share(x, x_low, x_high), _share(y, y_low, y_high)
        return round(LEFT + (right - LEFT) * across, 1), round(bottom - (bottom - TOP) * up, 1)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">']
    for y in ticks(y_low, y_high, 5):
        _, height = at(x_low, y)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{height}" y2="{height}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{height + 4}" text-anchor="end">{y:.6g}</text>')
    for x in ticks(x_low, x_high, 7):
        across, _ = at(x, y_low)
        parts.append(f'<text x="{across}" y="{bottom + 16}" text-anchor="middle">{x:.6g}</text>')
    parts.append(f'<text x="{right}" y="{HEIGHT - 3}" text-anchor="end">{x_name}</text>')
    for curve in curves:
        if curve.raw != curve.smooth:
            parts.append(_line(curve.raw, f"raw r{curve.run}", at))
        parts.append(_line(curve.smooth, f"line r{curve.run}", at))
        parts += _bars(curve, at)
    for curve in curves:
        parts += _dots(curve, labels[curve.run], x_name, at)
    return "\n".join([*parts, "</svg>"])


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


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Least and largest, apart from each other; what is beyond LARGEST is drawn at the edge."""
    low, high = max(min(values), -LARGEST), min(max(values), LARGEST)
    if high > low:
        return low, high
    room = abs(low) / 2 or 0.5
    return low - room, high + room


def _share(value: float, low: float, high: float) -> float:
    """Where a value lies between two, 0 to 1."""
    return (min(max(value, low), high) - low) / (high - low)


def _line(points: Sequence[tuple[float, float]], style: str, at: At) -> str:
    path = " ".join("{},{}".format(*at(x, y)) for x, y in points)
    return f'<polyline class="{style}" points="{path}"/>'


def _bars(curve: Curve, at: At) -> list[str]:
    out = []
    for x, low, high in curve.bars:
        (across, bottom), (_, top) = at(x, low), at(x, high)
        out.append(
            f'<line class="bar r{curve.run}" x1="{across}" x2="{across}" y1="{bottom}" y2="{top}"/>'
        )
    return out


def _dots(curve: Curve, label: str, x_name: str, at: At) -> list[str]:
    step = max(1, math.ceil(len(curve.raw) / DOTS))
    kind, size = ("mark", 3) if curve.marked else ("dot", 5)
    out = []
    for place in range(len(curve.raw) - 1, -1, -step):
        x, measured = curve.raw[place]
        _, mean = curve.smooth[place]
        across, height = at(x, mean)
        also = "" if measured == mean else f", mean {mean:.5g}"
        out.append(
            f'<circle class="{kind} r{curve.run}" cx="{across}" cy="{height}" r="{size}">'
            f"<title>{label}, {x_name} {x:.5g}: {measured:.5g}{also}</title></circle>"
        )
    return out
