"""How many different questions an agent asked of its search. Pure.

SE-Search (arXiv:2603.03293, algorithm 1) counts atomic queries: neither too short nor too long, and
unlike those counted before. Likeness is Ratcliff and Obershelp's ratio as Python's difflib has it:
twice the matched characters over both lengths. It is not symmetric; the new query comes first.

Two readings are options. As printed, the test of likeness stands inside the loop over what was
accepted, which begins empty, so that nothing is ever counted: rule = "printed". And a threshold of
0.3 on this ratio rejects half of all pairs of unrelated questions; semantics = "min_distance" takes
it as the least distance, 1 - ratio.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations
from typing import Literal

LONGEST = 200
"""Characters of a query that are compared: the comparison is cubic in the worst case."""
MOST = 32
"""Queries of a trajectory that are looked at: each is compared with those before it."""

Rule = Literal["all", "printed"]
Semantics = Literal["max_ratio", "min_distance"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Atomic:
    """What makes a query count. l_min, l_max: characters of the stripped query, both included.
    threshold: in [0, 1]. casefold: compare without regard to case."""

    l_min: int = 10
    l_max: int = 120
    threshold: float = 0.3
    semantics: Semantics = "max_ratio"
    rule: Rule = "all"
    casefold: bool = False

    def __post_init__(self) -> None:
        """ValueError for bounds that cannot be kept."""
        if not 0 <= self.l_min <= self.l_max <= LONGEST:
            raise ValueError(
                f"l_min = {self.l_min}, l_max = {self.l_max}: "
                f"write 0 <= l_min <= l_max <= {LONGEST}"
            )
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"similarity_threshold = {self.threshold}: write a number in [0, 1]")
        if self.semantics not in ("max_ratio", "min_distance"):
            raise ValueError(
                f"threshold_semantics = {self.semantics!r}: write 'max_ratio' or 'min_distance'"
            )
        if self.rule not in ("all", "printed"):
            raise ValueError(f"query_rule = {self.rule!r}: write 'all' or 'printed'")

    def unlike(self, new: str, accepted: str) -> bool:
        """Whether a query is another one than an accepted one."""
        if self.casefold:
            new, accepted = new.casefold(), accepted.casefold()
        found = ratio(new, accepted)
        if self.semantics == "min_distance":
            return 1 - found >= self.threshold
        return found <= self.threshold


def ratio(new: str, other: str) -> float:
    """Likeness of two texts, in [0, 1]; two empty ones are alike. Of each the first LONGEST
    characters count."""
    return SequenceMatcher(None, new[:LONGEST], other[:LONGEST], autojunk=False).ratio()


def atomic(queries: Iterable[str], settings: Atomic = Atomic()) -> list[str]:
    """The queries that count, in order; N_query is their number."""
    kept: list[str] = []
    for query in list(queries)[:MOST]:
        query = query.strip()
        if not settings.l_min <= len(query) <= settings.l_max:
            continue
        if settings.rule == "printed":
            kept += [query for other in tuple(kept) if settings.unlike(query, other)]
        elif all(settings.unlike(query, other) for other in kept):
            kept.append(query)
    return kept


def mean_pair_ratio(queries: Sequence[str]) -> float | None:
    """The mean likeness of each query to each before it; None for fewer than two."""
    pairs = list(combinations(queries[:MOST], 2))
    if not pairs:
        return None
    return sum(ratio(later, earlier) for earlier, later in pairs) / len(pairs)
