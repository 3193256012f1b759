"""The update: a batch is scored and judged, then optimizer steps move the weights.

Invariants
- A correction drops tokens and rows before any weight is computed: they count in no mean (see
  `maths.correction`). All rows that count are judged, also those that cannot move the weights.
- Rows that cannot move the weights are not forwarded. They stay in the metrics, and in the means
  unless the recipe drops them. Without a row left there is no optimizer step.
- All rows of a trajectory are in one optimizer step.
- No broken number reaches the weights. If an input, log-prob, loss or gradient of a row is not
  finite, all rows of its trajectory leave the batch and its means, and are counted. If the gradient
  is still not finite, the weights do not move. All ranks decide alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from learner.maths.tasks import Tasks
from learner.model.head import Entropy
from learner.model.policy import Model, Policy
from learner.ranks import device
from learner.training.batch import Row
from learner.training.minibatch import MiniBatch, add_stats, counts_of, split
from learner.training.objective import Objective, PolicyObjective
from learner.training.step import gradients, own_micro_batches
from learner.training.task_gradients import TaskGradients

MOST_BROKEN = 3
"""Limit of steps in a row without a finite gradient. One may be chance."""


@dataclass(slots=True, kw_only=True)
class Update:
    """Result of an update."""

    sums: dict[str, float] = field(default_factory=dict)
    """Summed stats, see `objective.Stats`."""
    grad_norm: float = 0.0
    """Mean gradient norm before clipping."""
    rate: float = 0.0
    """Learning rate."""
    tokens: int = 0
    """Forwarded tokens."""
    moved: int = 0
    """Optimizer steps taken."""
    broken: int = 0
    """Optimizer steps left out because there was no finite gradient."""
    dropped: list[str] = field(default_factory=list)
    """Trajectories of the rows that left the batch."""
    logprobs_s: float = 0.0
    """Time of the forward passes for log-probs of the start and of the reference, in seconds."""
    task_gradients: dict[str, float] = field(default_factory=dict)
    """Metrics of the tasks' own gradients, see `TaskGradients.found`."""

    @property
    def skipped(self) -> bool:
        """Whether the weights did not move."""
        return not self.moved

    @property
    def emptied(self) -> str | None:
        """A sentence if the correction dropped everything; else None."""
        if self.moved or self.broken or not self.sums.get("masked_tokens"):
            return None
        return (
            f"the correction dropped everything that could teach: "
            f"{self.sums['masked_tokens']:.0f} of {self.sums['compared']:.0f} tokens, "
            f"{self.sums['vetoed']:.0f} sequences vetoed and {self.sums['rejected']:.0f} rejected. "
            "Look at gap_max and rho_max in learner.jsonl before widening [learner.correction]"
        )


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
    tasks: Tasks | None = None,
    measure_tasks: bool = False,
) -> Update:
    """`updates` optimizer steps over one batch that every rank holds whole.

    step, steps: position in the rate's schedule. Log-probs of the weights at the start cost a
    forward pass with several updates, or with a correction that judges by them.

    tasks: the recipe's, None if it has one. measure_tasks: the first optimizer step takes their
    gradients one by one (see `training.task_gradients`).
    """
    done = Update(rate=policy.set_rate(step, steps))
    parts = [
        MiniBatch(
            rows=chunk,
            counts=counts_of(chunk, drop_silent=drop_silent),
            loss=objective.loss,
            all_rows=objective.moves_all_rows,
            tasks=tasks,
        )
        for chunk in split(rows, updates)
    ]
    parts = [part for part in parts if part.forwarded()]
    for part in parts:
        done.dropped += part.drop_unreadable(part.forwarded())
    began = time.monotonic()
    if objective.leaves_out:
        for part in parts:
            done.dropped += part.drop_unreadable(part.live())
            part.score(policy, budget, "old", part.live())
            done.dropped += part.drop_unreadable(part.live())
        parts = _judged(parts, objective, done.sums)
    elif len(parts) > 1 and objective.reads_old:
        for part in parts:
            part.score(policy, budget, "old", part.forwarded())
    if reference is not None:
        for part in parts:
            part.score(reference, budget, "reference", part.forwarded())
    done.logprobs_s = time.monotonic() - began
    norms = []
    one_by_one = TaskGradients(tasks.names) if tasks is not None and measure_tasks else None
    for number, part in enumerate(parts):
        done.dropped += part.drop_unreadable(part.forwarded())
        backward = one_by_one if one_by_one is not None and not number else together
        stats, norm, dropped = finite_gradients(
            policy, part, objective, budget, entropy=objective.entropy, backward=backward
        )
        done.dropped += dropped
        if not math.isfinite(norm):
            done.broken += 1
            continue
        policy.update(norm)
        norms.append(norm)
        if done.moved:
            # The weights are no longer those that sampled fresh tokens.
            stats = {n: value for n, value in stats.items() if "fresh" not in n.partition("/")[0]}
        add_stats(done.sums, stats)
        done.moved += 1
        done.tokens += sum(part.rows[place].length for place in part.forwarded())
    done.grad_norm = sum(norms) / len(norms) if norms else 0.0
    done.task_gradients = one_by_one.found if one_by_one is not None else {}
    return done


def _judged(
    parts: Sequence[MiniBatch], objective: PolicyObjective, sums: dict[str, float]
) -> list[MiniBatch]:
    """The mini-batches that still have rows. One that was empty before stays, and is broken."""
    left = []
    for part in parts:
        had = bool(part.forwarded())
        add_stats(sums, part.judge(objective))
        if part.forwarded() or not had:
            left.append(part)
    return left


class Backward(Protocol):
    """Puts the gradient of all rows into the policy's buffers: `together`, or `TaskGradients`."""

    def __call__(
        self,
        policy: Policy,
        rows: Sequence[Row],
        objective: Objective,
        budget: int,
        *,
        entropy: Entropy,
        broken: torch.Tensor,
    ) -> dict[str, float]: ...


def together(
    policy: Policy,
    rows: Sequence[Row],
    objective: Objective,
    budget: int,
    *,
    entropy: Entropy,
    broken: torch.Tensor,
) -> dict[str, float]:
    """`step.gradients` of a batch whose rows all ranks have."""
    mine = own_micro_batches(rows, budget)
    return gradients(policy, mine, objective, entropy=entropy, broken=broken)


def finite_gradients(
    policy: Policy,
    part: MiniBatch,
    objective: Objective,
    budget: int,
    *,
    entropy: Entropy = "metric",
    backward: Backward = together,
) -> tuple[dict[str, float], float, list[str]]:
    """(stats, gradient norm, trajectories of the dropped rows).

    The policy's buffers hold the gradient of the rows that are left. The norm is NaN if no row is
    left. It is NaN too if the gradient is not finite and no single row is the reason.
    """
    dropped: list[str] = []
    while rows := part.weighed():
        places = part.forwarded()
        broken = torch.zeros(len(rows), device=device.device())
        stats = backward(policy, rows, objective, budget, entropy=entropy, broken=broken)
        found = broken.nonzero().flatten().tolist()
        if not found:
            norm = policy.gradient_norm()
            if math.isfinite(norm):
                return stats, norm, dropped
            found = _culprits(policy, rows, list(range(len(rows))), objective, budget, entropy)
        if not found:
            break
        dropped += part.drop([places[index] for index in found])
    return {}, math.nan, dropped


def _culprits(
    policy: Policy,
    rows: Sequence[Row],
    chosen: list[int],
    objective: Objective,
    budget: int,
    entropy: Entropy,
) -> list[int]:
    """The chosen rows whose own gradient is not finite, found by halving."""
    mine = own_micro_batches([rows[index] for index in chosen], budget)
    gradients(policy, mine, objective, entropy=entropy)
    if math.isfinite(policy.gradient_norm()):
        return []
    if len(chosen) == 1:
        return chosen
    half = len(chosen) // 2
    return [
        index
        for side in (chosen[:half], chosen[half:])
        for index in _culprits(policy, rows, side, objective, budget, entropy)
    ]
