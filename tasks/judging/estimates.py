"""How good a system is, and how sure that is: estimates over questions, answered k times. Pure.

Scores are numbers a question's answer got, 0 or 1 for wrong and right. `Estimate` is a mean with
its standard error. Randomness comes from a seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.errors import TaskFault

MOST_SUMS = 50_000
"""Sums that the exact permutation test holds at once; with more it draws."""
DRAWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """questions: how many it is of. error: one standard error; of one question it says nothing."""

    mean: float
    error: float
    questions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How much better the first system is on the same questions.

    sign: two-sided p-value of the sign test, ties left out. permutation: two-sided p-value of the
    test that turns the sign of each question's difference.
    """

    mean: float
    error: float
    questions: int
    better: int
    worse: int
    sign: float
    permutation: float


def pass_at_k(samples: int, right: int, k: int) -> float:
    """The chance that one of k answers is right, when `right` of `samples` were: unbiased
    (arXiv:2107.03374, equation 1)."""
    if not 0 <= right <= samples or not 1 <= k <= samples:
        raise TaskFault(
            f"pass@{k} of {right} right among {samples}: k is at least 1, and at most the samples"
        )
    missed = 1.0
    for number in range(k):
        missed *= max(samples - right - number, 0) / (samples - number)
    return 1.0 - missed


def mean_pass_at_k(scores: Sequence[Sequence[float]], k: int) -> Estimate:
    """Over questions, each with the scores of its answers: above 0.5 is right."""
    by_question = [
        pass_at_k(len(own), sum(score > 0.5 for score in own), k) for own in scores if own
    ]
    return mean(by_question)


def mean(values: Sequence[float]) -> Estimate:
    """Of one value a question. For 0 and 1 the error is sqrt(p(1-p)/n)."""
    n = len(values)
    if not n:
        return Estimate(mean=0.0, error=0.0, questions=0)
    middle = math.fsum(values) / n
    error = math.sqrt(math.fsum((value - middle) ** 2 for value in values)) / n
    return Estimate(mean=middle, error=error, questions=n)


def avg_at_k(scores: Sequence[Sequence[float]]) -> Estimate:
    """The mean over all answers, its error clustered by question: answers to one question are not
    independent, so k answers to n questions are less sure than k·n questions.

    With equally many answers to each question that is the error of the questions' means.
    """
    own = [list(answers) for answers in scores if answers]
    total = sum(map(len, own))
    if not total:
        return Estimate(mean=0.0, error=0.0, questions=0)
    middle = math.fsum(score for answers in own for score in answers) / total
    spread = math.fsum(math.fsum(score - middle for score in answers) ** 2 for answers in own)
    return Estimate(mean=middle, error=math.sqrt(spread) / total, questions=len(own))


def ranks(scores: Mapping[str, float]) -> dict[str, int]:
    """Competition ranks, the largest score first: equal scores share the best rank (1, 2, 2, 4)."""
    return {
        name: 1 + sum(other > score for other in scores.values()) for name, score in scores.items()
    }


def average_ranks(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Each system's mean competition rank over benchmarks, as SEARL's table 1 has it. A table is
    score by system; all have the same systems (TaskFault)."""
    if not tables:
        return {}
    systems = set(tables[0])
    for number, table in enumerate(tables):
        if set(table) != systems:
            odd = ", ".join(sorted(systems ^ set(table)))
            raise TaskFault(
                f"benchmark {number} and the first differ in {odd}: rank what both have"
            )
    by_table = [ranks(table) for table in tables]
    return {name: math.fsum(found[name] for found in by_table) / len(tables) for name in tables[0]}


def difference(
    first: Mapping[str, float], second: Mapping[str, float], *, seed: int = 0
) -> Difference:
    """Of two systems, each with the mean score by question, on the questions that both have.

    The permutation test is exact while the sums it needs are at most 50,000, and has 10,000 draws
    else.
    """
    both = [first[name] - second[name] for name in sorted(set(first) & set(second))]
    found = mean(both)
    better, worse = sum(one > 0 for one in both), sum(one < 0 for one in both)
    return Difference(
        mean=found.mean,
        error=found.error,
        questions=found.questions,
        better=better,
        worse=worse,
        sign=sign_test(better, worse),
        permutation=permutation_test(both, seed=seed),
    )


def sign_test(better: int, worse: int) -> float:
    """Two-sided: how likely so uneven a split is, were better and worse equally likely."""
    n = better + worse
    if not n:
        return 1.0
    tail, ways = 0, 1
    for number in range(min(better, worse) + 1):
        tail += ways
        ways = ways * (n - number) // (number + 1)
    return min(1.0, float(2 * tail / (1 << n)))


def permutation_test(differences: Sequence[float], *, seed: int = 0) -> float:
    """Two-sided: how likely a sum at least as far from 0 is, were each difference's sign a coin."""
    moved = [abs(one) for one in differences if one]
    if not moved:
        return 1.0
    far = abs(math.fsum(differences)) - 1e-9 * math.fsum(moved)
    sums = {0.0: 1.0}
    for step in moved:
        following: dict[float, float] = {}
        for at, chance in sums.items():
            for there in (round(at + step, 9), round(at - step, 9)):
                following[there] = following.get(there, 0.0) + chance / 2
        if len(following) > MOST_SUMS:
            return _drawn(moved, far, seed)
        sums = following
    return min(1.0, math.fsum(chance for at, chance in sums.items() if abs(at) >= far))


def _drawn(moved: Sequence[float], far: float, seed: int) -> float:
    drawn = random.Random(seed)
    hits = 0
    for _ in range(DRAWS):
        signs = drawn.getrandbits(len(moved))
        total = sum(step if signs >> place & 1 else -step for place, step in enumerate(moved))
        hits += abs(total) >= far
    return (hits + 1) / (DRAWS + 1)  # the observed signs are one of the draws
