"""What a trace is worth: tiers of its answers, and what repeated calls cost. Pure.

MTR's reward is the score of the answers and a term of form (MTR, section 3.2.2). The paper's tiers
are lost with its formulas, and it defines neither the intermediate answer nor the term of
form: order and names are its text's, the numbers here are proposals, and options.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tasks.judging import words


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """Worth of a trace by its final and its intermediate answer.

    perfect: both are right. partial: one is right, the other shares words with a right one, its F1
    is `soft` or more. single: one is right. none: all else.
    """

    perfect: float = 1.0
    partial: float = 0.7
    single: float = 0.4
    none: float = 0.0
    soft: float = 0.5

    def __post_init__(self) -> None:
        """ValueError where the tiers do not descend, or a number is none."""
        ladder = (self.perfect, self.partial, self.single, self.none)
        for number in (*ladder, self.soft):
            _check_number("tiers", number)
        if not all(above > below for above, below in pairwise(ladder)):
            raise ValueError(
                f"tiers {ladder}: write perfect > partial > single > none, as the paper orders them"
            )
        if not 0 < self.soft <= 1:
            raise ValueError(f"tiers.soft = {self.soft}: write an F1, above 0 and at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """What calls cost that were made before: `per_repeat` each, `cap` at most."""

    per_repeat: float = 0.1
    cap: float = 0.5

    def __post_init__(self) -> None:
        """ValueError for a number that is none, or below 0."""
        for name, number in (("per_repeat", self.per_repeat), ("cap", self.cap)):
            _check_number(name, number)
            if number < 0:
                raise ValueError(f"{name} = {number}: write what is taken off, from 0 on")


def answer_score(
    final: str | None,
    intermediate: str | None,
    golds: Sequence[str],
    tiers: Tiers,
    *,
    single_final_only: bool = False,
) -> float:
    """The tier of two answers, None where there is none. `single_final_only`: a right intermediate
    answer beside a wrong final one is worth nothing; the paper does not tell the two apart."""
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


def _check_number(name: str, number: float) -> None:
    fits = isinstance(number, int | float) and not isinstance(number, bool)
    if not fits or not math.isfinite(number):
        raise ValueError(f"{name} = {number!r}: write a finite number")
