"""Numbers in lines for people. Pure."""

from __future__ import annotations

WIDE = 1e6
"""Size from which on a number is written with an exponent: a reward may be 1e300."""


def compact(value: float, digits: int = 3) -> str:
    """At most some ten characters, with `digits` after the point below WIDE."""
    return f"{value:.{digits}f}" if abs(value) < WIDE else f"{value:.{digits}g}"
