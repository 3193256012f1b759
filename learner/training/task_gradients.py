"""The gradients of several tasks one by one, and the cosines between them.

There is a backward pass for each task instead of one for all, over the same rows in the same sum.
Its cost: micro-batches split by task, a temporary copy of the gradients for each task, and two
passes over them for each pair.

Invariants
- The policy's buffers end with the sum of all tasks' gradients on every rank, up to rounding. The
  split of model and batch does not matter.
- A cosine is made of norms alone: |a/|a| + b/|b||^2 / 2 - 1. So a norm over ranks is the only
  operation across ranks. Both vectors are scaled to 1 first, so that a small gradient is not lost
  beside a large one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import torch

from learner.model.head import Entropy
from learner.model.policy import Policy
from learner.training.batch import Row
from learner.training.minibatch import add_stats
from learner.training.objective import Objective
from learner.training.step import gradients, own_micro_batches


@dataclass(slots=True)
class TaskGradients:
    """A `Backward` that takes the place of `update.together` for one step."""

    names: Sequence[str]
    """Names of the tasks, in the recipe's order."""
    found: dict[str, float] = field(default_factory=dict)
    """Metrics of the last pass: `task/NAME/grad_norm` of each task, and `gradient_cosine/A,B` of
    each pair whose gradients are not 0."""

    def __call__(
        self,
        policy: Policy,
        rows: Sequence[Row],
        objective: Objective,
        budget: int,
        *,
        entropy: Entropy,
        broken: torch.Tensor,
    ) -> dict[str, float]:
        """Like `step.gradients` of all the rows."""
        self.found.clear()
        sums: dict[str, float] = {}
        norms: dict[int, float] = {}
        kept: dict[int, list[torch.Tensor]] = {}
        for task in sorted({row.task for row in rows}):
            places = [place for place, row in enumerate(rows) if row.task == task]
            own = torch.zeros(len(places), device=broken.device)
            mine = own_micro_batches([rows[place] for place in places], budget)
            add_stats(sums, gradients(policy, mine, objective, entropy=entropy, broken=own))
            broken[places] = own
            norms[task] = policy.gradient_norm()
            kept[task] = [buffer.clone() for buffer in policy.gradient_buffers()]
            self.found[f"task/{self.names[task]}/grad_norm"] = norms[task]
        moving = [task for task, norm in norms.items() if norm > 0 and math.isfinite(norm)]
        for one, other in combinations(moving, 2):
            _fill(policy, [kept[one], kept[other]], [1 / norms[one], 1 / norms[other]])
            cosine = policy.gradient_norm() ** 2 / 2 - 1
            pair = f"{self.names[one]},{self.names[other]}"
            self.found[f"gradient_cosine/{pair}"] = max(-1.0, min(1.0, cosine))
        _fill(policy, list(kept.values()), [1.0] * len(kept))
        return sums


def _fill(
    policy: Policy, parts: Sequence[Sequence[torch.Tensor]], factors: Sequence[float]
) -> None:
    """Sets the buffers to the weighted sum of the parts."""
    for place, buffer in enumerate(policy.gradient_buffers()):
        buffer.zero_()
        for part, factor in zip(parts, factors, strict=True):
            buffer.add_(part[place], alpha=factor)
