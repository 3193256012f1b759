"""Charts as inline SVG: lines with error bars, and one stacked bar.

Colours and fonts come from the page's style sheet by class names, so that a chart follows the
reader's light or dark setting. Everything here is pure: numbers in, markup out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 40
LETTER, LABEL_MARGIN = 7.2, 14  # pixels that the name of a part of the bar needs

_At = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A measured point; `error` is one standard error. `says`: its tooltip, if not the default."""

    x: float
    y: float
    error: float = 0.0
    says: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve. `style` is a class of the style sheet; dots carry a tooltip each."""

    name: str
    style: str
    points: tuple[Point, ...]
    dots: bool = False


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
    last: float,
    x_name: str,
    y_name: str,
    top: float = 1.0,
    labels: Sequence[str] = (),
) -> str:
    """Curves over 0..last; y runs from 0 to `top`. `labels`: what stands below 0, 1, 2 ..., for
    an axis of names instead of numbers."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (right - LEFT) * (x / last if last else 0.0)
        return round(across, 1), round(bottom - (bottom - TOP) * min(1.0, max(0.0, y / top)), 1)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(y_name)}">',
        *_grid(at, last, top, labels),
        f'<text class="axis" x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{escape(x_name)}</text>",
        f'<text class="axis" x="12" y="{(TOP + bottom) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 12 {(TOP + bottom) / 2})">{escape(y_name)}</text>',
    ]
    for line in lines:
        path = " ".join("{},{}".format(*at(p.x, p.y)) for p in line.points)
        parts.append(f'<polyline class="line {line.style}" points="{path}"/>')
        if line.dots:
            parts += [_dot(line, p, at) for p in line.points]
    return "\n".join([*parts, "</svg>"])


def stacked_bar(parts: Sequence[Part]) -> str:
    """Shares of a whole side by side; parts too narrow for their name have it in the tooltip."""
    whole = sum(part.value for part in parts) or 1.0
    out = [f'<svg viewBox="0 0 {WIDTH} 56" role="img" aria-label="shares">']
    left = 0.0
    for part in parts:
        width = WIDTH * part.value / whole
        out.append(
            f"<g><title>{escape(part.name)}: {escape(part.text)}</title>"
            f'<rect class="part {part.style}" x="{left:.1f}" y="0" width="{max(0, width - 2):.1f}" '
            'height="56" rx="4"/>'
        )
        if width >= LETTER * max(len(part.name), len(part.text)) + LABEL_MARGIN:
            middle = left + width / 2
            out.append(
                f'<text class="on-part" x="{middle:.1f}" y="24" text-anchor="middle">'
                f"{escape(part.name)}</text>"
                f'<text class="on-part small" x="{middle:.1f}" y="43" text-anchor="middle">'
                f"{escape(part.text)}</text>"
            )
        out.append("</g>")
        left += width
    return "\n".join([*out, "</svg>"])


def smooth(values: Sequence[float], window: int) -> list[float]:
    """Mean over the last `window` values at each place."""
    return [
        math.fsum(values[max(0, end - window) : end]) / min(end, window)
        for end in range(1, len(values) + 1)
    ]


def ticks(last: float, about: int = 8) -> list[float]:
    """Round numbers from 0 to `last`."""
    if last <= 0:
        return [0.0]
    raw = last / about
    power = 10.0 ** math.floor(math.log10(raw))
    size = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= raw)
    return [size * number for number in range(int(last / size + 1e-9) + 1)]


def _grid(at: _At, last: float, top: float, labels: Sequence[str]) -> list[str]:
    out = []
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for y in ticks(top, about=5):
        _, height = at(0, y)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{height}" y2="{height}"/>')
        out.append(
            f'<text class="tick" x="{LEFT - 8}" y="{height + 4}" text-anchor="end">{y:,g}</text>'
        )
    named = [(float(place), name) for place, name in enumerate(labels)]
    for x, label in named or [(x, f"{x:g}") for x in ticks(last)]:
        across, _ = at(x, 0)
        out.append(
            f'<text class="tick" x="{across}" y="{bottom + 17}" text-anchor="middle">'
            f"{escape(label)}</text>"
        )
    return out


def _dot(line: Line, point: Point, at: _At) -> str:
    x, y = at(point.x, point.y)
    bar = ""
    if point.error:
        (_, high), (_, low) = at(point.x, point.y + point.error), at(point.x, point.y - point.error)
        bar = f'<line class="error {line.style}" x1="{x}" x2="{x}" y1="{high}" y2="{low}"/>'
    says = point.says or f"step {point.x:g}: {point.y:.3f} ± {point.error:.3f}"
    title = f"{escape(line.name)}, {escape(says)}"
    dot = f'<circle class="dot {line.style}" cx="{x}" cy="{y}" r="3.4"/>'
    return f"<g><title>{title}</title>{bar}{dot}</g>"
