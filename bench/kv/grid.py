"""The cells of the table: each workload on each cache size, with its best fixed limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.kv.playing import Machine, RunFigures, play
from bench.kv.workloads import WORKLOADS

DEFAULT_LIMIT = 128
"""The limit of a recipe that sets none."""
NEARER = (0.8, 1.25)
"""Factors of the best given limit: these limits are played too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One workload on one cache."""

    workload: str
    cache_tokens: int
    auto: RunFigures
    fixed: dict[int, RunFigures]
    """By limit."""

    @property
    def best(self) -> int:
        """The best fixed limit in hindsight."""
        return min(self.fixed, key=lambda limit: self.fixed[limit].seconds)

    @property
    def to_best(self) -> float:
        """Makespan of the controller, divided by that of the best fixed limit."""
        return self.auto.seconds / self.fixed[self.best].seconds

    @property
    def quicker(self) -> float:
        """Makespan of the default limit, divided by the controller's."""
        return self.fixed[DEFAULT_LIMIT].seconds / self.auto.seconds

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        return found | {"best": self.best, "to_best": self.to_best, "quicker": self.quicker}


def measure(
    workload: str,
    machine: Machine,
    *,
    trajectories: int,
    limits: Sequence[int],
    say: Callable[[str], None],
) -> Cell:
    """Plays the controller, the given limits and the default one, then limits near the best."""

    def played(limit: int | None) -> RunFigures:
        found = play(WORKLOADS[workload], machine, trajectories=trajectories, limit=limit)
        name = "auto" if limit is None else f"limit {limit}"
        say(f"{workload}, {machine.cache_tokens:,} tokens of cache, {name}: {found.seconds:,.0f} s")
        return found

    cell = Cell(
        workload=workload,
        cache_tokens=machine.cache_tokens,
        auto=played(None),
        fixed={limit: played(limit) for limit in dict.fromkeys((*limits, DEFAULT_LIMIT))},
    )
    for limit in [round(factor * cell.best) for factor in NEARER]:
        if limit not in cell.fixed:
            cell.fixed[limit] = played(limit)
    return cell
