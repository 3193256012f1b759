"""The result of an evaluation, from one row after another: sums, and no list of rows. Pure.

A row is errored if infrastructure or the reward function failed, and bad if its task cannot be
rolled out at all. Neither says anything about the policy: they are counted separately and enter
neither the mean nor `n`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from engine.serving.evaluation.rates import Rates
from toolwright.reward_figures import RATES, SHARES
from toolwright.types import StopReason

ERRORED = "errored"
BAD = "bad"


class RowState(IntEnum):
    """The state of a row of a suite."""

    OPEN = 0
    MEASURED = 1
    BAD = 2
    """Its task cannot be rolled out."""
    ERRORED = 3
    """Infrastructure or the reward function failed; it is run again."""


def state_of(row: Mapping[str, Any]) -> RowState:
    """The state that a line of the results file gives to its row."""
    if row.get(BAD):
        return RowState.BAD
    return RowState.ERRORED if row.get(ERRORED) else RowState.MEASURED


@dataclass(slots=True)
class SuiteTally:
    """Sums over rows. Mean and squares follow Welford (1962): the squares of large rewards do not
    cancel each other."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0
    lowest: float = math.inf
    highest: float = -math.inf
    calls: int = 0
    tokens: int = 0
    masked: int = 0
    errored: int = 0
    bad: int = 0
    stops: Counter[str] = field(default_factory=Counter)
    parts: dict[str, float] = field(default_factory=dict)
    rates: Rates = field(default_factory=Rates)

    def add(self, row: Mapping[str, Any]) -> None:
        """Counts a row of the results file."""
        match state_of(row):
            case RowState.BAD:
                self.bad += 1
            case RowState.ERRORED:
                self.errored += 1
            case _:
                self._measure(row)

    def again(self) -> None:
        """Removes the count of an errored row that is run again."""
        self.errored -= 1

    def _measure(self, row: Mapping[str, Any]) -> None:
        reward = float(row["reward"])
        self.n += 1
        self.lowest, self.highest = min(self.lowest, reward), max(self.highest, reward)
        before = reward - self.mean
        self.mean += before / self.n
        self.squares += before * (reward - self.mean)
        self.calls += int(row["calls"])
        self.tokens += int(row["response_tokens"])
        self.masked += bool(row["masked"])
        self.stops[str(row["stop_reason"])] += 1
        for name, value in row["parts"].items():
            self.parts[name] = self.parts.get(name, 0.0) + float(value)
        self.rates.add(row.get(RATES, {}), shares=row.get(SHARES, ()))

    @property
    def stderr(self) -> float:
        """Standard error of the mean; 0 for a single row."""
        return math.sqrt(self.squares / max(self.n - 1, 1) / self.n) if self.n else 0.0

    @property
    def all_wrong(self) -> bool:
        """Whether several rows all have an answer worth 0: then the policy is seldom the cause."""
        answered = self.stops[StopReason.ANSWERED.name.lower()] == self.n > 1
        return answered and self.mean == 0 and self.squares == 0

    def summary(self) -> dict[str, object]:
        """The measured part of a line of evaluations.jsonl. Raises ZeroDivisionError without a
        measured row."""
        return {
            "n": self.n,
            "reward": self.mean,
            "stderr": self.stderr,
            "lowest": self.lowest,
            "highest": self.highest,
            "calls": self.calls / self.n,
            "response_tokens": self.tokens / self.n,
            "masked": self.masked,
            "errored": self.errored,
            "bad_rows": self.bad,
            "stops": dict(self.stops.most_common()),
            "parts": {name: total / self.n for name, total in self.parts.items()},
            **({RATES: rates} if (rates := self.rates.shown()) else {}),
        }
