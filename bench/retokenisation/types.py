"""What the two gradients come to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One batch, one way of old log-probs. gap: mean distance of the learner's log-probs from
    them. clipped: share of tokens whose ratio a bound cut."""

    norm: float
    gap: float
    clipped: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """(as recorded, encoded anew), for each way."""

    reward: float
    by_index: tuple[Side, Side]
    anew: tuple[Side, Side]
