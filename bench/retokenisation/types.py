"""The two gradients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientSide:
    """Gradient of one batch with one way of old log-probs."""

    norm: float
    gap: float
    """Mean distance of the learner's log-probs from the old ones."""
    clipped: float
    """Share of tokens whose ratio a bound cut."""
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """(as recorded, encoded again) for each way."""

    reward: float
    by_index: tuple[GradientSide, GradientSide]
    anew: tuple[GradientSide, GradientSide]
