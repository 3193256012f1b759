"""Answers of open questions, compared word by word: EM, CEM and F1 as SQuAD and Search-R1 do. Pure.

Case, ASCII punctuation, articles and the width of white space say nothing (arXiv:2603.03293,
equation 10, with the multisets of SQuAD where the equation writes sets). Work is linear in the
length of what is compared, of which the first LONGEST characters count.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

LONGEST = 10_000
"""Characters of a text that are looked at."""
VERDICTS = frozenset({"yes", "no", "noanswer"})
"""Answers that share no credit with any other (HotpotQA's own scorer)."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MARKS = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single blanks.

    Punctuation leaves no blank behind: "twenty-one" becomes "twentyone".
    """
    return " ".join(_ARTICLES.sub(" ", text[:LONGEST].lower().translate(_MARKS)).split())


def exact_match(prediction: str, golds: Iterable[str]) -> bool:
    """Whether an answer is one of the right ones, both normalised."""
    found = normalise(prediction)
    return any(normalise(gold) == found for gold in golds)


def cover_match(text: str, golds: Iterable[str]) -> bool:
    """Whether a right answer stands somewhere in a text, both normalised.

    A right answer of which nothing is left when it is normalised ("the") stands nowhere.
    """
    found = normalise(text)
    return any(gold and gold in found for gold in map(normalise, golds))


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
