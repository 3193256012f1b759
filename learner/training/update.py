"""A batch into better weights: token weights, optimizer steps.

Invariants: nothing but rows crosses into a step; rows that cannot move the weights are not
forwarded (they stay in the metrics, and in the means unless the recipe drops them); no rows left
means no optimizer step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from learner.maths.losses import token_weights
from learner.model import parallel
from learner.model.policy import Model, Policy
from learner.training.batch import Row, micro_batches
from learner.training.objective import PolicyObjective
from learner.training.step import gradients, score


@dataclass(slots=True, kw_only=True)
class Update:
    """What happened: summed stats (see `objective.Stats`), mean gradient norm before clipping,
    rate, forwarded tokens, whether no optimizer step was taken."""

    sums: dict[str, float] = field(default_factory=dict)
    grad_norm: float = 0.0
    rate: float = 0.0
    tokens: int = 0
    skipped: bool = False


def weigh(rows: Sequence[Row], *, mode: str, norm: float, drop_silent: bool) -> list[Row]:
    """Rows with each target's share of the loss; `drop_silent`: rows of advantage 0 get none."""
    counts = [0 if drop_silent and row.advantage == 0 else row.count for row in rows]
    weights = token_weights(counts, mode, norm=norm)
    return [
        replace(row, weight=weight if count else 0.0)
        for row, weight, count in zip(rows, weights, counts, strict=True)
    ]


def improve(
    policy: Policy,
    rows: Sequence[Row],
    objective: PolicyObjective,
    *,
    reference: Model | None,
    updates: int,
    budget: int,
    step: int,
    steps: int,
    drop_silent: bool,
) -> Update:
    """`updates` optimizer steps over one batch that every rank holds whole.

    step, steps: place in the rate's schedule. The log-probs of the weights at the start are
    computed only where they differ from the current ones, that is with several updates.
    """
    loss = objective.loss
    done = Update(rate=policy.set_rate(step, steps))
    chunks = [
        weigh(part, mode=loss.aggregation, norm=loss.norm, drop_silent=drop_silent)
        for part in (rows[start::updates] for start in range(updates))
    ]
    with_kl = objective.kl.coefficient > 0
    chunks = [[r for r in part if r.weight and (r.advantage or with_kl)] for part in chunks]
    chunks = [part for part in chunks if part]
    if reference is not None:
        chunks = [score(reference, part, budget, "reference")[0] for part in chunks]
    if len(chunks) > 1 and objective.correction != "bypass":
        chunks = [score(policy, part, budget, "old")[0] for part in chunks]
    norms = []
    for number, part in enumerate(chunks):
        mine = micro_batches(
            part, rank=parallel.data_rank(), ranks=parallel.data_size(), budget=budget
        )
        stats = gradients(policy, mine, objective)
        norms.append(policy.update())
        done.tokens += sum(row.length for row in part)
        _add(done.sums, stats, moved=number > 0)
    done.skipped = not chunks
    done.grad_norm = sum(norms) / len(norms) if norms else 0.0
    return done


def _add(sums: dict[str, float], stats: dict[str, float], *, moved: bool) -> None:
    """Adds a chunk's stats. moved: the weights are no longer those that sampled fresh tokens."""
    for name, value in stats.items():
        if moved and "fresh" in name:
            continue
        if name.startswith("max_"):
            sums[name] = max(sums.get(name, 0.0), value)
        else:
            sums[name] = sums.get(name, 0.0) + value
