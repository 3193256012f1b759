"""Whether an answer is right. Pure.

Numbers are compared as numbers, all else word by word: case, articles, punctuation and white space
say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tasks.judging import words

CLOSE = 1e-4
"""Relative; two numbers as near as that are one (released code, envs/reward_utils.py)."""


def right(answer: str | None, golds: Iterable[str]) -> bool:
    """Whether an answer is one of the right ones."""
    return answer is not None and any(_same(answer, gold) for gold in golds)


def f1(answer: str | None, golds: Iterable[str]) -> float:
    """1 for a right answer, else the best share of words in common with a right one."""
    golds = list(golds)
    if right(answer, golds):
        return 1.0
    return words.f1(answer or "", golds)


def _same(answer: str, gold: str) -> bool:
    one, other = _number(answer), _number(gold)
    if one is not None and other is not None:
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-12)
    normal = words.normalise(answer)
    return normal == words.normalise(gold) and (bool(normal) or answer.strip() == gold.strip())


def _number(text: str) -> float | None:
    text = text[: words.LONGEST].strip().strip("$").removesuffix("%").replace(",", "").strip()
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
