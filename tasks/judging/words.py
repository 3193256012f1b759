"""Comparisons of answers to open questions: EM, CEM and F1 of SQuAD and Search-R1. Pure.

Texts are compared in the canonical form of `toolwright.reading.answers.words`: case, ASCII
punctuation, articles and the width of white space say nothing (arXiv:2603.03293, equation 10, with
the multisets of SQuAD where the equation writes sets). Work is linear in the length of the texts,
of which the first LONGEST characters count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from toolwright.reading.answers import LONGEST, bare_words
from toolwright.reading.answers import words as normalise

__all__ = ["LONGEST", "VERDICTS", "cover_match", "exact_match", "f1", "normalise"]

VERDICTS = frozenset({"yes", "no", "noanswer"})
"""Answers that share no credit with any other (HotpotQA's own scorer)."""


def exact_match(prediction: str, golds: Iterable[str]) -> bool:
    """Whether an answer is one of the right ones. A blank prediction matches nothing."""
    found = normalise(prediction)
    return bool(found) and any(normalise(gold) == found for gold in golds)


def cover_match(text: str, golds: Iterable[str]) -> bool:
    """Whether a right answer stands somewhere in a text.

    A right answer that has only articles and punctuation ("the") stands nowhere.
    """
    found = bare_words(text)
    return any(gold and gold in found for gold in map(bare_words, golds))


def f1(prediction: str, golds: Iterable[str], *, multiset: bool = True) -> float:
    """The best harmonic mean of precision and recall of words, in [0, 1].

    `multiset=False` counts a word once however often it stands there, as equation 10 is printed.
    """
    found = normalise(prediction)
    return max((_overlap(found, normalise(gold), multiset) for gold in golds), default=0.0)


def _overlap(one: str, other: str, multiset: bool) -> float:
    if one != other and (one in VERDICTS or other in VERDICTS):
        return 0.0
    count = Counter if multiset else _once
    left, right = count(one.split()), count(other.split())
    common = sum((left & right).values())
    return 2 * common / (sum(left.values()) + sum(right.values())) if common else 0.0


def _once(words: list[str]) -> Counter[str]:
    return Counter(set(words))
