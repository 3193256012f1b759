"""What several seeds say of a variation: differences to the base by seed. Pure.

A difference is that of two runs with one seed, so that what a seed does to both cancels. Its error
is that of the mean over seeds; it counts where the mean lies further from 0 than Student's t for so
many seeds would have it in 19 of 20 cases without any effect. Three seeds give 4.3 standard errors
where many would give 2: that is what three seeds are worth. If the score has an error over
its questions, the difference must exceed that too, so three seeds that agree by chance prove
nothing. Values that are not finite do not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from toolwright.statistics import NORMAL, Mean, mean_of, student


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
class Difference:
    """To the base, over `n` seeds that have both; None where none has."""

    mean: float | None
    stderr: float | None
    n: int
    against: Against


def difference(
    ours: Mapping[int, float],
    base: Mapping[int, float],
    *,
    errors: Iterable[float] = (),
    complete: bool = True,
) -> Difference:
    """The difference of values by seed. errors: standard errors of both sides' values over
    questions, if they have any. complete: every requested run has ended."""
    pairs = [ours[seed] - base[seed] for seed in ours if seed in base]
    found = mean_of(pairs)
    if found is None:
        return Difference(mean=None, stderr=None, n=0, against=Against.NOTHING)
    floor = math.hypot(*errors) / found.n
    against = _against(found, floor) if complete else Against.INCOMPLETE
    return Difference(mean=found.mean, stderr=found.stderr, n=found.n, against=against)


def _against(found: Mean, floor: float) -> Against:
    if found.stderr is None:
        return Against.ONE_SEED
    bound = max(student(found.n - 1) * found.stderr, NORMAL * floor)
    if abs(found.mean) <= bound:
        return Against.NOISE
    return Against.HIGHER if found.mean > 0 else Against.LOWER
