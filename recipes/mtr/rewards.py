"""What a trace is worth: tiers of its answers, and what repeated calls cost. Pure.

MTR's reward is the score of the answers and a term of form (MTR, section 3.2.2). The paper's tiers
are lost with its formulas, and it defines neither the intermediate answer nor the term of
form: order and names are its text's, the numbers here are proposals, and options.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from pydantic import Field, model_validator

from engine.api import Options
from tasks.judging import words


class Tiers(Options):
    """Worth of a trace by its final and its intermediate answer."""

    perfect: float = 1.0
    """Both are right."""
    partial: float = 0.7
    """One is right, and the other one's F1 is `soft` or more."""
    single: float = 0.4
    """One is right."""
    none: float = 0.0
    """All else."""
    soft: float = Field(0.5, gt=0, le=1)

    @model_validator(mode="after")
    def _descends(self) -> Tiers:
        ladder = (self.perfect, self.partial, self.single, self.none)
        if not all(above > below for above, below in pairwise(ladder)):
            raise ValueError("write perfect > partial > single > none, as the paper orders them")
        return self


class Repetition(Options):
    """Cost of calls that were made before."""

    per_repeat: float = Field(0.1, ge=0)
    cap: float = Field(0.5, ge=0)
    """Most that repeated calls of a trace cost."""


def answer_score(
    final: str | None,
    intermediate: str | None,
    golds: Sequence[str],
    tiers: Tiers,
    *,
    single_final_only: bool = False,
) -> float:
    """The tier of two answers; None stands for a missing one.

    single_final_only: a right intermediate answer beside a wrong final one is worth nothing; the
    paper does not distinguish the two.
    """
    right = [one is not None and words.exact_match(one, golds) for one in (final, intermediate)]
    if all(right):
        return tiers.perfect
    if not any(right):
        return tiers.none
    other = intermediate if right[0] else final
    if other is not None and words.f1(other, golds) >= tiers.soft:
        return tiers.partial
    return tiers.single if right[0] or not single_final_only else tiers.none


def repetition_penalty(calls: Iterable[str], how: Repetition) -> float:
    """At most 0. calls: texts, the same for equal calls. The first of equal calls is free: a
    correction, whose arguments differ, costs nothing, and an identical retry does."""
    texts = list(calls)
    return -min(how.cap, how.per_repeat * (len(texts) - len(set(texts)))) or 0.0


def total_reward(
    final: str | None,
    intermediate: str | None,
    golds: Sequence[str],
    calls: Iterable[str],
    *,
    tiers: Tiers,
    repetition: Repetition,
    single_final_only: bool = False,
) -> dict[str, float]:
    """Its parts, whose sum it is."""
    worth = answer_score(final, intermediate, golds, tiers, single_final_only=single_final_only)
    return {"answer": worth, "repetition": repetition_penalty(calls, repetition)}
