"""The cells of the table: each workload on each cache size, with its best fixed limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.kv.playing import Machine, Played, play
from bench.kv.workloads import WORKLOADS

BEFORE = 128
"""The limit of a recipe that sets none."""
FIRST = (8, 16, 32, 64, 128)
NEARER = (0.8, 1.25)
"""Factors of the limits that are tried beside the best of the first ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One workload on one cache."""

    workload: str
    cache_tokens: int
    auto: Played
    fixed: dict[int, Played]
    """By limit."""

    @property
    def best(self) -> int:
        """The best fixed limit in hindsight."""
        return min(self.fixed, key=lambda limit: self.fixed[limit].seconds)

    @property
    def to_best(self) -> float:
        """Makespan by that of the best fixed limit."""
        return self.auto.seconds / self.fixed[self.best].seconds

    @property
    def quicker(self) -> float:
        """Makespan of the default limit by the controller's."""
        return self.fixed[BEFORE].seconds / self.auto.seconds

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        return found | {"best": self.best, "to_best": self.to_best, "quicker": self.quicker}


def measure(
    workload: str,
    machine: Machine,
    *,
    trajectories: int,
    limits: Sequence[int] = FIRST,
    say: Callable[[str], None],
) -> Cell:
    """Plays the controller, the given limits and BEFORE, then the limits beside the best one."""

    def played(limit: int | None) -> Played:
        found = play(WORKLOADS[workload], machine, trajectories=trajectories, limit=limit)
        name = "auto" if limit is None else f"limit {limit}"
        say(f"{workload}, {machine.cache_tokens:,} tokens of cache, {name}: {found.seconds:,.0f} s")
        return found

    auto = played(None)
    fixed = {limit: played(limit) for limit in dict.fromkeys((*limits, BEFORE))}
    best = min(fixed, key=lambda limit: fixed[limit].seconds)
    for factor in NEARER:
        limit = round(factor * best)
        if limit not in fixed:
            fixed[limit] = played(limit)
    return Cell(workload=workload, cache_tokens=machine.cache_tokens, auto=auto, fixed=fixed)
