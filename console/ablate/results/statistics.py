"""What several seeds say of a variation: means, and differences to the base by seed. Pure.

A difference is that of two runs with one seed, so that what a seed does to both cancels. Its error
is that of the mean over seeds; it counts where the mean lies further from 0 than Student's t for so
many seeds would have it in 19 of 20 cases without any effect. Three seeds give 4.3 standard errors
where many would give 2: that is what three seeds are worth. Where the score itself has an error,
over the questions that were asked, the difference has to exceed that as well, so that three seeds
which agree by chance prove nothing. What is no finite number is left out and counts for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

NORMAL = 1.96
"""Standard errors around a mean that hold 95 % of a normal distribution."""
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""The same of Student's t, for 1 degree of freedom and on."""


class Against(StrEnum):
    """What a difference to the base is, in the words of the table."""

    HIGHER = "higher"
    """More than noise."""
    LOWER = "lower"
    """The same downwards."""
    NOISE = "noise"
    """Not further from 0 than chance would have it."""
    ONE_SEED = "one seed"
    """A single pair says nothing of noise."""
    INCOMPLETE = "incomplete"
    """A run of one of the two failed or is not done: what is left may be what went well."""
    NOTHING = "not compared"
    """No seed has both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """Over `n` seeds. stderr: None for one."""

    mean: float
    stderr: float | None
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """To the base, over `n` seeds that have both; None where none has."""

    mean: float | None
    stderr: float | None
    n: int
    against: Against


def mean_of(values: Iterable[float]) -> Mean | None:
    """None without a finite value."""
    found = [value for value in values if math.isfinite(value)]
    if not found:
        return None
    n = len(found)
    mean = math.fsum(value / n for value in found)
    if n == 1:
        return Mean(mean=mean, stderr=None, n=1)
    # hypot: squares of large values are no numbers.
    spread = math.hypot(*(value - mean for value in found)) / math.sqrt(n - 1)
    return Mean(mean=mean, stderr=spread / math.sqrt(n), n=n)


def difference(
    ours: Mapping[int, float],
    base: Mapping[int, float],
    *,
    errors: Iterable[float] = (),
    complete: bool = True,
) -> Difference:
    """Of values by seed. errors: standard errors of both sides' values over questions, where they
    have any. complete: every run that was asked for has come to its end."""
    pairs = [ours[seed] - base[seed] for seed in ours if seed in base]
    found = mean_of(pairs)
    if found is None:
        return Difference(mean=None, stderr=None, n=0, against=Against.NOTHING)
    floor = math.hypot(*errors) / found.n
    against = _against(found, floor) if complete else Against.INCOMPLETE
    return Difference(mean=found.mean, stderr=found.stderr, n=found.n, against=against)


def student(degrees: int) -> float:
    """Standard errors that hold 95 % of Student's t."""
    if degrees <= len(STUDENT):
        return STUDENT[degrees - 1]
    return NORMAL + (NORMAL**3 + NORMAL) / (4 * degrees)  # Cornish and Fisher, first order


def _against(found: Mean, floor: float) -> Against:
    if found.stderr is None:
        return Against.ONE_SEED
    bound = max(student(found.n - 1) * found.stderr, NORMAL * floor)
    if abs(found.mean) <= bound:
        return Against.NOISE
    return Against.HIGHER if found.mean > 0 else Against.LOWER
