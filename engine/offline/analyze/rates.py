"""Rates of recorded trajectories, and how those of two recordings differ. Pure.

The share of malformed calls is that of MTR's table 5. What a recipe counts itself comes from its
events: `rates` of evaluations, and figures `measured` in training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from engine.serving.evaluation.rates import MOST_RATES, rates_of
from toolwright.reward_figures import MEASURED, numbers_of
from toolwright.statistics import normal
from toolwright.types import CallRecord, Event, Trajectory

CALLS, WITH_A_CALL = "calls a trajectory", "trajectories with a call"
MALFORMED, FAILED = "malformed calls", "failed calls"
OWN_SHARES = (WITH_A_CALL, MALFORMED, FAILED)
"""Rates of this module that are shares."""


def call_rates(count: int) -> dict[str, list[float]]:
    """[numerator, denominator] by name, of a conversation with so many calls."""
    return {CALLS: [count, 1], WITH_A_CALL: [count > 0, 1]}


def trajectory_rates(trajectory: Trajectory, calls: Sequence[CallRecord]) -> dict[str, list[float]]:
    """[numerator, denominator] by name. calls: those that count, since branches share calls."""
    return {
        **_measured(trajectory.events),
        **rates_of(trajectory.events),
        **call_rates(len(calls)),
        MALFORMED: [sum(call.outcome.malformed for call in calls), len(calls)],
        FAILED: [sum(call.outcome.failed for call in calls), len(calls)],
    }


def compared(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    """B less A of each rate that both have, as findings hold them. The recordings count as
    independent. If both have the same questions, the true error is smaller."""
    return [
        {
            "name": name,
            "a": one,
            "b": b[name],
            "difference": (difference := b[name]["rate"] - one["rate"]),
            "standard_error": (error := _together(one, b[name])),
            "p": None if error is None else normal(difference, error),
        }
        for name, one in a.items()
        if name in b
    ]


def _together(a: Mapping[str, Any], b: Mapping[str, Any]) -> float | None:
    errors = a["standard_error"], b["standard_error"]
    return None if None in errors else math.hypot(*errors)


def _measured(events: Sequence[Event]) -> dict[str, list[float]]:
    """Sum and number of the values of each figure."""
    found: dict[str, list[float]] = {}
    for event in events:
        for name, value in event.data.items() if event.kind == MEASURED else ():
            if numbers := numbers_of(value):
                found[str(name)] = [math.fsum(numbers), len(numbers)]
    return {name: found[name] for name in sorted(found)[:MOST_RATES]}
