"""The numbers of SE-Search's reward (arXiv:2603.03293, equations 9 and 12), and of its neighbours'.

Pure. Weights that the paper calls by one letter have a name each.
"""

from __future__ import annotations

import math


def query_reward(*, correct: bool, n_query: int, t_max: int) -> float:
    """-max(1, N_query) for a right answer, min(T_max, N_query) for a wrong one (equation 9):
    explore until it is right, then search no more than it takes. A right answer without a search
    gets what one with a single search gets, as printed."""
    return -float(max(1, n_query)) if correct else float(min(t_max, n_query))


def cosine_decay(t: int, t_decay: int) -> float:
    """From 1 at training step 0 to 0 at `t_decay` and ever after."""
    if t >= t_decay:
        return 0.0
    return (math.cos(math.pi * max(t, 0) / t_decay) + 1) / 2


def dense_reward(
    *,
    r_ans: float,
    r_mem: float,
    r_query: float,
    r_format: float,
    mu: float,
    memory_weight: float = 0.1,
    query_weight: float = 0.01,
    format_weight: float = 0.01,
) -> dict[str, float]:
    """Its parts, whose sum it is (equation 12, where one letter weighs queries and format)."""
    return {
        "answer": r_ans,
        "memory": memory_weight * r_mem,
        "query": query_weight * mu * r_query,
        "format": format_weight * r_format,
    }


MANY_ANSWERS = 10


def outcome(
    *, correct: bool, answered: bool = True, wrong: float = 0.0, answer_tags: int = 0
) -> float:
    """1 for a right answer, `wrong` for any other and for none: 0 for Search-R1, -1 for VerlTool's
    search task (arXiv:2509.01055, equation 7). The released code divides a right answer's by four
    where more than MANY_ANSWERS answers are opened or closed: `answer_tags`, 0 = that is not asked.
    """
    if not (correct and answered):
        return wrong
    return 0.25 if answer_tags > MANY_ANSWERS else 1.0
