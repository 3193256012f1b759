"""Weights of tokens in a batch with several tasks.

Let w be the tasks' weights over their sum. With `per_task` the loss is the sum over tasks of w
times the task's own mean. Otherwise it is the mean over the whole batch, in which a task's tokens
count w times the number of tasks; equal weights then give the plain mean. A task without tokens
adds nothing, and the others keep their shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from learner.maths.aggregation import token_weights
from toolwright.credit.losses import AGGREGATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """The tasks of a recipe that has several, in its order."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    per_task: bool
    """Whether means are taken within each task."""

    @property
    def shares(self) -> list[float]:
        """The weights over their sum."""
        return [weight / sum(self.weights) for weight in self.weights]


def mixed_weights(
    counts: Sequence[int],
    of_row: Sequence[int],
    tasks: Tasks,
    mode: str,
    *,
    norm: float = 1.0,
    trajectories: Sequence[str] | None = None,
    copies: Sequence[float] | None = None,
) -> list[float]:
    """Like `aggregation.token_weights`, for a batch with several tasks.

    of_row: task of each sequence, as its index in `tasks`.
    """
    if not tasks.per_task or "norm" in AGGREGATIONS[mode].reads:
        plain = token_weights(counts, mode, norm=norm, trajectories=trajectories, copies=copies)
        factors = [share * len(tasks.names) for share in tasks.shares]
        return [factors[task] * weight for task, weight in zip(of_row, plain, strict=True)]
    out = [0.0] * len(counts)
    for task, share in enumerate(tasks.shares):
        places = [place for place, own in enumerate(of_row) if own == task]
        own_weights = token_weights(
            [counts[place] for place in places],
            mode,
            norm=norm,
            trajectories=trajectories and [trajectories[place] for place in places],
            copies=copies and [copies[place] for place in places],
        )
        for place, weight in zip(places, own_weights, strict=True):
            out[place] = share * weight
    return out
