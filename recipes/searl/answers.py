"""Whether an answer is right. Pure.

Numbers are compared as numbers, all else word by word: case, articles, punctuation and white space
say nothing.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Iterable

CLOSE = 1e-4
"""Relative; two numbers as near as that are one (released code, envs/reward_utils.py)."""
LONGEST = 10_000
"""Characters of an answer that are looked at."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MARKS = str.maketrans("", "", string.punctuation)


def right(answer: str | None, golds: Iterable[str]) -> bool:
    """Whether an answer is one of the right ones."""
    return answer is not None and any(_same(answer, gold) for gold in golds)


def f1(answer: str | None, golds: Iterable[str]) -> float:
    """1 for a right answer, else the best share of words in common with a right one."""
    golds = list(golds)
    if right(answer, golds):
        return 1.0
    return max((_overlap(_words(answer or ""), _words(gold)) for gold in golds), default=0.0)


def _same(answer: str, gold: str) -> bool:
    one, other = _number(answer), _number(gold)
    if one is not None and other is not None:
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-12)
    words = _words(answer)
    return words == _words(gold) and (bool(words) or answer.strip() == gold.strip())


def _number(text: str) -> float | None:
    text = text[:LONGEST].strip().strip("$").removesuffix("%").replace(",", "").strip()
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text[:LONGEST].lower().translate(_MARKS)).split()


def _overlap(one: list[str], other: list[str]) -> float:
    common = sum((Counter(one) & Counter(other)).values())
    if not common:
        return 0.0
    precision, recall = common / len(one), common / len(other)
    return 2 * precision * recall / (precision + recall)
