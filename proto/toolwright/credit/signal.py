"""Decides whether the rewards of a group differ, which is its signal.

Advantages, dynamic sampling and the learner's metrics all use it. So a group that one of them keeps
has advantages in the others. Pure functions of Python numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

ROUNDING = 1e-12
"""Largest difference that counts as rounding, for values of size 1 and below. For larger values the
limit is relative to the largest: the sum of 1000.1 and 0.2 rounds a thousand times as coarsely."""


def is_constant(lowest: float, highest: float) -> bool:
    """Whether values between these two differ by no more than rounding.

    NaN and infinity are not constant: they must spoil their own group, not pass as 0.
    """
    return highest - lowest <= ROUNDING * max(1.0, abs(lowest), abs(highest))


def varies(values: Iterable[float]) -> bool:
    """Whether at least two of the values differ by more than rounding, or one is not finite."""
    found = list(values)
    if not all(map(math.isfinite, found)):
        return True
    return bool(found) and not is_constant(min(found), max(found))
