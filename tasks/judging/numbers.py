"""Comparison of mathematical answers without computer algebra: as numbers, then as texts. Pure.

Both are read by `toolwright.reading.expressions`. So "1/2" and "\\frac{1}{2}" are the same, and
"x+1" and "1+x" differ: `symbols` knows better.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from toolwright.reading.answers import unwrapped
from toolwright.reading.answers import words as normalise
from toolwright.reading.expressions import (
    Quantity,
    bases,
    expression,
    in_base_ten,
    quantity,
)

CLOSE = 1e-4
"""Largest difference of two equal numbers, as a share of the larger one (the released reward of
SEARL, envs/reward_utils.py)."""
LONGEST = 1000
"""Longest answer that is compared, in characters. A longer one is not a number, and never written
twice in the same way."""


def same_number_or_text(answer: str, golds: Iterable[str]) -> bool:
    """Whether an answer is one of the right ones, as a number or as a mathematical text."""
    return any(_same(answer, gold) for gold in golds)


def same_number_or_words(answer: str | None, golds: Iterable[str]) -> bool:
    """Whether an answer is one of the right ones, as a number or by exact match. Two numbers are
    never compared as words."""
    return answer is not None and any(_same_words(answer, gold) for gold in golds)


def same_number(answer: str, golds: Iterable[str]) -> bool:
    """Whether an answer and one of the right ones are the same number."""
    said = quantity(answer)
    found = (quantity(gold) for gold in golds) if said is not None else ()
    return any(one is not None and said is not None and same_quantity(said, one) for one in found)


def number_of(text: str) -> Fraction | None:
    """The number that a text is (`expressions.quantity`), without its unit; else None."""
    found = quantity(text)
    return None if found is None else found.value


def close(one: Fraction | float, other: Fraction | float) -> bool:
    """Whether two finite numbers are the same: whole numbers exactly, others within CLOSE."""
    one, other = Fraction(one), Fraction(other)
    if one.denominator == 1 == other.denominator:
        return one == other
    return abs(one - other) <= Fraction(CLOSE) * max(abs(one), abs(other))


def same_quantity(one: Quantity, other: Quantity) -> bool:
    """Whether numbers and units are the same. A number without a unit has any unit."""
    return not other_units(one, other) and close(one.value, other.value)


def other_units(one: Quantity, other: Quantity) -> bool:
    """Whether both name a unit, and not the same one. Words that are not units are not compared."""
    return one.known and other.known and one.unit != other.unit


def _same(answer: str, gold: str) -> bool:
    if len(answer) > LONGEST or len(gold) > LONGEST:
        return False
    one, other = quantity(answer), quantity(gold)
    if one is not None and other is not None:
        return same_quantity(one, other)
    said, right = expression(answer), expression(gold)
    return bool(right) and _plain(said) == _plain(right) and bases(said) == bases(right)


def _same_words(answer: str, gold: str) -> bool:
    one, other = quantity(answer), quantity(gold)
    if one is not None and other is not None:
        return same_quantity(one, other)
    found = normalise(answer)
    return bool(found) and found == normalise(gold)


def _plain(text: str) -> str:
    return " ".join(unwrapped(in_base_ten(text)).lower().split())
