"""Figures that a reward function states by name in an event of its trajectory. They change no
reward."""

from __future__ import annotations

import math

MEASURED = "measured"
"""Kind of events with figures for the learner's log."""
METRIC = "measured/"
"""Prefix of their names among the learner's metrics."""
DEVIATION = "_deviation"
"""Suffix of a metric that is the standard deviation of a figure that is a list."""
RATES = "rates"
"""Kind of events with rates of an evaluation, [numerator, denominator] by name."""
SHARES = "shares"
"""Kind of events with those rates that are shares of a whole, from 0 to 1, in the same form."""


def numbers_of(value: object) -> list[float]:
    """The finite numbers of a figure, which is a number or a list of them."""
    several = value if isinstance(value, list | tuple) else (value,)
    return [float(one) for one in several if isinstance(one, int | float) and math.isfinite(one)]
