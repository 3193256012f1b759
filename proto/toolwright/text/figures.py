"""Numbers in lines for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping

WIDE = 1e6
"""Least size of a number that is written with an exponent: a reward may be 1e300."""


def compact(value: float, digits: int = 3) -> str:
    """At most some ten characters, with `digits` after the point below WIDE."""
    return f"{value:.{digits}f}" if abs(value) < WIDE else f"{value:.{digits}g}"


def restarted(counts: Mapping[str, int]) -> str:
    """A sentence on tool services that ended and were restarted; "" without any. counts: restarts
    by the service's name."""
    return "; ".join(
        f"tools.{name} ended and was restarted {count} time{'s' * (count > 1)}: look at "
        f"tools.{name}.log"
        for name, count in counts.items()
        if count
    )
