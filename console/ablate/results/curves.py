"""What a curve comes to as one number, and several seeds' curves as one with its spread. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from console.verdict import FIFTH
from toolwright.page.plot import smooth
from toolwright.statistics import mean_of

WINDOW = 5
"""Steps that a curve is a mean of where it is drawn, and where it is held against a threshold."""

Curve = Sequence[tuple[float, float]]
"""(step, value), in the order of the steps."""


def end(curve: Curve) -> float | None:
    """The mean over the last fifth of the points."""
    return _mean([value for _, value in curve[-max(1, len(curve) // FIFTH) :]])


def beginning(curve: Curve) -> float | None:
    """The mean over the first fifth of the points."""
    return _mean([value for _, value in curve[: max(1, len(curve) // FIFTH)]])


def height(curve: Curve) -> float | None:
    """The area under the curve over its width: of two that end alike, that of the one that learnt
    earlier is higher. Between points that lie apart the curve is straight."""
    if len(curve) < 2:
        return _mean([value for _, value in curve])
    width = curve[-1][0] - curve[0][0]
    return math.fsum(
        (x1 - x0) / width * (y0 / 2 + y1 / 2) for (x0, y0), (x1, y1) in pairwise(curve)
    )


def reached(curve: Curve, threshold: float) -> float | None:
    """The first step at which the mean over the last WINDOW points is at least `threshold`; None
    where it never is. Fewer points at the beginning are no such mean."""
    means = smooth([value for _, value in curve], WINDOW)
    first = min(WINDOW, len(curve)) - 1
    found = zip(curve[first:], means[first:], strict=True) if curve else ()
    return next((step for (step, _), mean in found if mean >= threshold), None)


def together(curves: Sequence[Curve]) -> list[tuple[float, float, float]]:
    """(step, mean, standard error) at the steps that all of them have; the error of one is 0.

    A step that one lacks is left out: a mean over others would jump there.
    """
    tables = [dict(curve) for curve in curves]
    steps = sorted(set.intersection(*map(set, tables))) if tables else []
    out = []
    for step in steps:
        found = mean_of(table[step] for table in tables)
        if found is not None:
            out.append((step, found.mean, found.stderr or 0.0))
    return out


def _mean(values: Sequence[float]) -> float | None:
    found = mean_of(values)
    return None if found is None else found.mean
