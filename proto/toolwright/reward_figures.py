"""Figures that a reward function states by name in an event of its trajectory. They change no
reward."""

MEASURED = "measured"
"""Kind of events with figures for the learner's log."""
METRIC = "measured/"
"""Prefix of their names among the learner's metrics."""
DEVIATION = "_deviation"
"""Suffix of a metric that is the standard deviation of a figure that is a list."""
RATES = "rates"
"""Kind of events with rates of an evaluation, [numerator, denominator] by name."""
