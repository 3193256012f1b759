"""Rates of an evaluation, each with its own denominator. Pure.

A reward function reports one trajectory's part with an event of kind `rates`, whose data are {name:
[numerator, denominator]}: 2 of 5 calls refused, for example. A rate is the sum of numerators over
the sum of denominators, so a trajectory without a call does not count for a rate of calls. Rates in
an event of kind `shares` are shares of a whole; others may be means of anything.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from toolwright.reward_figures import RATES, SHARES
from toolwright.statistics import Ratio
from toolwright.types import Event

MOST_RATES = 32
"""Most rates of one trajectory, the first ones by name."""


Sums = dict[str, tuple[float, float]]
"""Sums of numerators and of denominators, by the rate's name."""


class Rates:
    """Rates over trajectories, with their standard errors."""

    def __init__(self) -> None:
        self._ratios: dict[str, Ratio] = {}
        self._shares: set[str] = set()

    def add(
        self,
        of_one: Mapping[str, Any],
        question: Sums | None = None,
        *,
        shares: Iterable[str] = (),
    ) -> None:
        """of_one: [numerator, denominator] by name, as `rates_of` gives them. question: the sums of
        the trajectory's question so far, which this extends; None for its only trajectory. shares:
        names of those that are shares."""
        question = {} if question is None else question
        self._shares.update(shares)
        for name, (part, whole) in of_one.items():
            before = question.get(name, (0.0, 0.0))
            self._ratios.setdefault(name, Ratio()).add(float(part), float(whole), before)
            question[name] = (before[0] + float(part), before[1] + float(whole))

    def include(self, other: Rates) -> None:
        """Adds the trajectories of another suite."""
        self._shares |= other._shares
        for name, ratio in other._ratios.items():
            self._ratios.setdefault(name, Ratio()).include(ratio)

    def shown(self) -> dict[str, dict[str, float | None]]:
        """{name: {"rate", "of", "standard_error"}}; `of` is the denominator. A share also has
        "share", which is True. A rate over nothing is left out; the error of a single question is
        None."""
        return {
            name: {"rate": rate, "of": ratio.whole, "standard_error": ratio.stderr}
            | ({"share": True} if name in self._shares else {})
            for name, ratio in self._ratios.items()
            if (rate := ratio.value) is not None
        }


def rates_of(
    events: Iterable[Event], kinds: Collection[str] = (RATES, SHARES)
) -> dict[str, list[float]]:
    """Rates in the events of one trajectory that have one of the kinds. Entries that are not two
    finite numbers, the second from 0 on, are left out."""
    found: dict[str, list[float]] = {}
    for event in events:
        if event.kind in kinds:
            found |= {
                str(name): pair for name, value in event.data.items() if (pair := _pair(value))
            }
    return {name: found[name] for name in sorted(found)[:MOST_RATES]}


def shares_of(events: Iterable[Event]) -> list[str]:
    """Names of the rates in those events that are shares."""
    return list(rates_of(events, (SHARES,)))


def _pair(value: object) -> list[float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return []
    numbers = [float(one) for one in value if isinstance(one, int | float)]
    usable = len(numbers) == 2 and all(map(math.isfinite, numbers)) and numbers[1] >= 0
    return numbers if usable else []
