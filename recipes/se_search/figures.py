"""What a search agent did, in figures beside its reward: for logs alone, never for the loss. Pure.

They travel as an event of the kind `measured`; the learner writes the mean of each over the
trajectories that state it, `measured/NAME`. So a figure that has no meaning for a trajectory, such
as the likeness of queries with one query, is left out. An evaluation counts the same as rates, over
queries and over pairs of queries.

decided_by_form (of a group) comes from the group hook `Decided`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.api import Score
from toolwright.types import Trajectory

from .dialogue import Dialogue
from .queries import Atomic, pair_ratios

FORM = ("query", "format")
"""Parts of the reward that say nothing about what was found."""


def measured(
    said: Dialogue, *, right: bool, remembered: bool, n_query: int, settings: Atomic
) -> dict[str, Any]:
    """Searches, atomic queries, the length of each query in characters, the mean likeness of two
    queries of the trajectory, and whether the memory has a right answer."""
    data: dict[str, Any] = {
        "searches": float(len(said.queries)),
        "atomic_queries": float(n_query),
        "remembered": float(remembered),
        "right": float(right),
    }
    if right:
        data["searches_if_right"] = data["searches"]
    if said.queries:
        data["query_length"] = list(map(len, said.queries))
    if alike := pair_ratios(said.queries, settings):
        data["query_likeness"] = sum(alike) / len(alike)
    return data


def rates(said: Dialogue, settings: Atomic) -> dict[str, list[float]]:
    """(sum, number) of the lengths of queries, and of the likeness of two queries."""
    alike = pair_ratios(said.queries, settings)
    return {
        "query_length": [sum(map(len, said.queries)), len(said.queries)],
        "query_likeness": [sum(alike), len(alike)],
    }


class Decided:
    """A group hook: says of each group whether its rewards differ by form alone, that is, by the
    query or the format part. Where that share is large, advantages that are divided by a deviation
    are made of a hundredth of a point. It changes no reward."""

    async def __call__(self, group: Sequence[Trajectory]) -> list[Score | None]:
        there = [one for one in group if not one.outside_baseline and one.reward_parts]
        by_form = decided_by_form([_parts(one) for one in there])
        score = Score.of({}, measured={"decided_by_form": float(by_form)})
        known = {one.id for one in there}
        return [score if one.id in known else None for one in group]


def decided_by_form(members: Sequence[dict[str, float]]) -> bool:
    """Whether parts of the reward, by name, differ between members, and those of FORM alone do."""

    def vary(form: bool) -> bool:
        kept = [
            tuple(sorted((n, round(v, 9)) for n, v in one.items() if (n in FORM) is form))
            for one in members
        ]
        return len(set(kept)) > 1

    return vary(True) and not vary(False)


def _parts(trajectory: Trajectory) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in trajectory.reward_parts:
        if part.turn is None:
            found[part.name] = found.get(part.name, 0.0) + part.value
    return found
