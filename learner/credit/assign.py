"""Rows with their advantages.

The order is fixed: trajectories are compared, turns add `weight` times their advantage, branches
take means, a teacher adds its advantages, and the factor of the data source comes last. The recipe
may restrict a comparison over the batch to each data source. A group has one task and therefore one
data source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from learner.config.objective import Advantage, Credit, Distill
from learner.credit.branches import evened
from learner.credit.episode import episode_advantages
from learner.credit.members import Member, members_of
from learner.maths.turns import token_map
from learner.training.batch import Row
from toolwright.credit.turns import turn_terms
from toolwright.types import Group


@dataclass(slots=True)
class Tally:
    """Totals over the data sources of a batch."""

    alive: set[str] = field(default_factory=set)
    """Groups with an advantage."""
    episode: float = 0.0
    """Sum of the sizes of the trajectories' advantages over all targets."""
    steps: float = 0.0
    """Sum of the sizes of the turns' advantages over all targets."""
    turns: int = 0
    compared: int = 0
    """Number of turns that were compared with others."""


def assigned(
    rows: Sequence[Row],
    groups: Sequence[Group],
    advantage: Advantage,
    credit: Credit,
    *,
    kl: float = 0.0,
    distill: Distill | None = None,
) -> tuple[list[Row], dict[str, float]]:
    """(rows with advantages and `silent`, metrics of the advantages).

    rows: rows of these groups. kl: coefficient of the KL penalty in the reward; above 0 the rows
    must have reference log-probs. distill: of a distillation, whose rows must have teacher
    log-probs.
    """
    members = members_of(groups, rows)
    tally = Tally()
    values = [np.zeros(len(row.tokens)) for row in rows]
    rewarded = distill is None or distill.reward
    for part in _parts(members, advantage) if rewarded else ():
        _fill(values, part, rows, advantage, credit, kl, tally)
    if credit.branches == "hard":
        for place, mean in evened(members, rows, values).items():
            values[place] = mean
    alive: set[str] = set()
    for member in members:
        factor = advantage.weights.get(member.trajectory.task.data_source, 1.0)
        for place in member.rows:
            if distill is not None:
                values[place] += _of_teacher(rows[place], distill)
            values[place] = factor * values[place]
        signal = any(values[place][rows[place].target].any() for place in member.rows)
        if signal or (factor and member.group in tally.alive):
            alive.add(member.group)
    done = list(rows)
    with np.errstate(
        over="ignore"
    ):  # a value beyond float32 becomes infinite, and its row is dropped
        for member in members:
            for place in member.rows:
                done[place] = replace(
                    rows[place],
                    advantage=values[place].astype(np.float32),
                    silent=member.group not in alive,
                )
    distances = {
        "kl_in_reward": [
            row.excess(row.reference) for row in rows if kl and row.reference is not None
        ],
        "kl_teacher": [row.excess(row.teacher) for row in rows if row.teacher is not None],
    }
    means = {name: float(np.concatenate(v).mean()) for name, v in distances.items() if v}
    return done, {**advantage_stats(done), **_shares(tally), **means}


def _of_teacher(row: Row, distill: Distill) -> np.ndarray:
    """[T] float64: minus the coefficient times log p_sampler - log p_teacher at targets, else 0."""
    if row.teacher is None:
        raise ValueError("score the rows by the teacher before taking its advantages")
    found = np.zeros(len(row.tokens))
    found[row.target] = -distill.coefficient * row.excess(row.teacher)
    return found


def advantage_stats(rows: Sequence[Row]) -> dict[str, float]:
    """Mean, deviation, largest size and share of zeros over all targets; empty without targets."""
    values = [row.advantage[row.target].astype(np.float64) for row in rows]
    found = np.concatenate([np.zeros(0), *values])
    found = found[np.isfinite(found)]
    if not len(found):
        return {}
    return {
        "advantage_mean": float(found.mean()),
        "advantage_std": float(found.std()),
        "advantage_max": float(np.abs(found).max()),
        "advantage_zero_fraction": float((found == 0).mean()),
    }


def _parts(members: list[Member], advantage: Advantage) -> list[list[Member]]:
    """Members that are compared over the batch: all, or those of each data source."""
    if not advantage.per_data_source:
        return [members]
    parts: dict[str, list[Member]] = {}
    for member in members:
        parts.setdefault(member.trajectory.task.data_source, []).append(member)
    return list(parts.values())


def _fill(
    values: list[np.ndarray],
    members: Sequence[Member],
    rows: Sequence[Row],
    advantage: Advantage,
    credit: Credit,
    kl: float,
    tally: Tally,
) -> None:
    """Writes the advantages of these members' rows."""
    episode, alive = episode_advantages(members, rows, advantage, credit, kl=kl)
    turns = [member.turns for member in members]
    steps, compared = turn_terms(turns, credit, eps=advantage.eps)
    tally.alive |= alive
    tally.turns += sum(map(len, steps))
    tally.compared += compared
    for member, tokens, own in zip(members, episode, steps, strict=True):
        start = 0
        for place in member.rows:
            row = rows[place]
            of_targets = tokens[start : start + row.count]
            start += row.count
            base = np.zeros(len(row.tokens))
            base[row.target] = of_targets
            spans = member.trajectory.sequences[row.sequence].action_spans
            total = token_map(base, own, spans, len(base), credit.weight)
            values[place] = total
            tally.episode += float(np.abs(of_targets).sum())
            tally.steps += float(np.abs(total[row.target] - of_targets).sum())


def _shares(tally: Tally) -> dict[str, float]:
    """Share of the advantages from turns, and share of turns that were compared."""
    if not tally.turns:
        return {}
    size = tally.episode + tally.steps
    return {
        "turn_credit_share": tally.steps / size if size else 0.0,
        "turns_compared_fraction": tally.compared / tally.turns,
    }
