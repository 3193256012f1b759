"""Rates of an evaluation, each with its own denominator. Pure.

A reward function reports one trajectory's part with an event of kind `rates`, whose data are {name:
[numerator, denominator]}: 2 of 5 calls refused, for example. A rate is the sum of numerators over
the sum of denominators, so a trajectory without a call does not count for a rate of calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from toolwright.types import Event

RATES = "rates"
MOST_RATES = 32
"""Most rates of one trajectory, the first ones by name."""


class Rates:
    """Sums over trajectories."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}

    def add(self, of_one: Mapping[str, Any]) -> None:
        """of_one: [numerator, denominator] by name, as `rates_of` gives them."""
        for name, (part, whole) in of_one.items():
            before = self._sums.get(name, (0.0, 0.0))
            self._sums[name] = (before[0] + float(part), before[1] + float(whole))

    def shown(self) -> dict[str, dict[str, float]]:
        """{name: {"rate", "of"}}; `of` is the denominator. A rate over nothing is left out."""
        return {
            name: {"rate": part / whole, "of": whole}
            for name, (part, whole) in self._sums.items()
            if whole
        }


def rates_of(events: Iterable[Event]) -> dict[str, list[float]]:
    """Rates in the events of one trajectory. Entries that are not two finite numbers, the second
    from 0 on, are left out."""
    found: dict[str, list[float]] = {}
    for event in events:
        if event.kind == RATES:
            found |= {
                str(name): pair for name, value in event.data.items() if (pair := _pair(value))
            }
    return {name: found[name] for name in sorted(found)[:MOST_RATES]}


def _pair(value: object) -> list[float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return []
    numbers = [float(one) for one in value if isinstance(one, int | float)]
    usable = len(numbers) == 2 and all(map(math.isfinite, numbers)) and numbers[1] >= 0
    return numbers if usable else []
