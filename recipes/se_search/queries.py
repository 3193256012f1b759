"""How many different questions an agent asked of its search. Pure.

SE-Search (arXiv:2603.03293, algorithm 1) counts atomic queries: neither too short nor too long, and
unlike those counted before. Likeness is Ratcliff and Obershelp's ratio as Python's difflib has it:
twice the matched characters over both lengths. It is not symmetric; the new query comes first.

Two readings are options. As printed, the test of likeness is inside the loop over accepted queries,
which begins empty, so no query ever counts: query_rule = "printed". And a threshold of 0.3 on this
ratio rejects half of all pairs of unrelated questions: threshold_semantics = "min_distance"
takes it as the least distance, 1 - ratio.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import combinations
from typing import Literal

from pydantic import Field, model_validator

from engine.api import Options

LONGEST = 200
"""Characters of a query that are compared: the comparison is cubic in the worst case."""
MOST = 32
"""Queries of a trajectory that are looked at: each is compared with those before it."""

Rule = Literal["all", "printed"]
Semantics = Literal["max_ratio", "min_distance"]


class Atomic(Options):
    """What makes a query count."""

    l_min: int = Field(10, ge=0)
    """Least number of characters of the stripped query."""
    l_max: int = Field(120, le=LONGEST)
    """Largest number of characters."""
    similarity_threshold: float = Field(0.3, ge=0, le=1)
    threshold_semantics: Semantics = "max_ratio"
    query_rule: Rule = "all"
    casefold: bool = False
    """Compare without regard to case."""

    @model_validator(mode="after")
    def _has_room(self) -> Atomic:
        if self.l_min > self.l_max:
            raise ValueError(f"l_min = {self.l_min}, l_max = {self.l_max}: write l_min <= l_max")
        return self

    def unlike(self, new: str, accepted: str) -> bool:
        """Whether a query is another one than an accepted one."""
        found = self.likeness(new, accepted)
        if self.threshold_semantics == "min_distance":
            return 1 - found >= self.similarity_threshold
        return found <= self.similarity_threshold

    def likeness(self, new: str, other: str) -> float:
        """`ratio`, without regard to case if `casefold`."""
        return ratio(new.casefold(), other.casefold()) if self.casefold else ratio(new, other)


PAPER = Atomic()


def ratio(new: str, other: str) -> float:
    """Likeness of two texts, in [0, 1]; two empty ones are alike. The first LONGEST characters
    of each count."""
    return SequenceMatcher(None, new[:LONGEST], other[:LONGEST], autojunk=False).ratio()


def atomic(queries: Iterable[str], settings: Atomic = PAPER) -> list[str]:
    """The queries that count, in order; N_query is their number."""
    kept: list[str] = []
    for query in list(queries)[:MOST]:
        query = query.strip()
        if not settings.l_min <= len(query) <= settings.l_max:
            continue
        if settings.query_rule == "printed":
            kept += [query for other in tuple(kept) if settings.unlike(query, other)]
        elif all(settings.unlike(query, other) for other in kept):
            kept.append(query)
    return kept


def pair_ratios(queries: Sequence[str], settings: Atomic = PAPER) -> list[float]:
    """The likeness of each query to each before it (equation 14)."""
    pairs = combinations(queries[:MOST], 2)
    return [settings.likeness(later, earlier) for earlier, later in pairs]
