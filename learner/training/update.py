"""A batch into better weights: what is scored and judged, then optimizer steps.

Invariants
- What a correction leaves out leaves before anything is weighed: no mean holds it (see
  `maths.correction`). All rows that count are judged, also those that cannot move the weights.
- Nothing but rows crosses into a step; rows that cannot move the weights are not forwarded (they
  stay in the metrics, and in the means unless the recipe drops them); no rows left means no
  optimizer step.
- No broken number reaches the weights: a row with an input, a log-prob, a loss or a
  gradient that is not finite leaves the batch, its means included, and is counted. Gradients that
  are not finite all the same move nothing. All ranks decide alike.
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
from learner.training.apart import Apart
from learner.training.batch import Row
from learner.training.objective import Objective, PolicyObjective
from learner.training.part import Part, add_stats, counts_of
from learner.training.step import gradients, own_micro_batches

MOST_BROKEN = 3
"""Steps in a row without a finite gradient. One may be chance."""


@dataclass(slots=True, kw_only=True)
class Update:
    """What happened: summed stats (see `objective.Stats`), mean gradient norm before clipping,
    rate, forwarded tokens.

    moved: optimizer steps taken. broken: left out because no finite gradient was found. dropped:
    trajectories of the rows that left the batch. logprobs_s: seconds for log-probs of their own,
    of the weights at the start and of the reference. apart: what the tasks' own gradients tell.
    """

    sums: dict[str, float] = field(default_factory=dict)
    grad_norm: float = 0.0
    rate: float = 0.0
    tokens: int = 0
    moved: int = 0
    broken: int = 0
    dropped: list[str] = field(default_factory=list)
    logprobs_s: float = 0.0
    apart: dict[str, float] = field(default_factory=dict)

    @property
    def skipped(self) -> bool:
        """The weights are what they were."""
        return not self.moved

    @property
    def emptied(self) -> str | None:
        """A sentence where the correction left nothing to learn from."""
        if self.moved or self.broken or not self.sums.get("masked_tokens"):
            return None
        return (
            f"the correction left out what there was to learn: "
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
    apart: bool = False,
) -> Update:
    """`updates` optimizer steps over one batch that every rank holds whole.

    step, steps: place in the rate's schedule. The log-probs of the weights at the start are
    computed only where they differ from the current ones, that is with several updates, and where
    a correction judges by them.

    tasks: where the recipe has several. apart: the first optimizer step takes their gradients one
    by one (see `training.apart`).
    """
    done = Update(rate=policy.set_rate(step, steps))
    parts = [
        Part(
            rows=list(chunk),
            counts=counts_of(chunk, drop_silent=drop_silent),
            loss=objective.loss,
            everything=objective.moves_all_rows,
            tasks=tasks,
        )
        for chunk in (rows[start::updates] for start in range(updates))
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
    one_by_one = Apart(tasks.names) if tasks is not None and apart else None
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
    done.apart = one_by_one.found if one_by_one is not None else {}
    return done


def _judged(
    parts: Sequence[Part], objective: PolicyObjective, sums: dict[str, float]
) -> list[Part]:
    """The parts of which something is left; one that was empty before stays, and is broken."""
    left = []
    for part in parts:
        had = bool(part.forwarded())
        add_stats(sums, part.judge(objective))
        if part.forwarded() or not had:
            left.append(part)
    return left


class Backward(Protocol):
    """Leaves the gradient of all rows in the policy's buffers: `together`, or `Apart`."""

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
    """`step.gradients` of a batch whose rows all ranks hold."""
    mine = own_micro_batches(rows, budget)
    return gradients(policy, mine, objective, entropy=entropy, broken=broken)


def finite_gradients(
    policy: Policy,
    part: Part,
    objective: Objective,
    budget: int,
    *,
    entropy: Entropy = "metric",
    backward: Backward = together,
) -> tuple[dict[str, float], float, list[str]]:
    """(stats, gradient norm, trajectories of the rows that were dropped on the way).

    The policy's buffers hold the gradient of the rows that are left in the part. The norm is NaN
    when no row is left, or when the gradient is not finite and no single row is the reason.
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
    """Which of the chosen rows have a gradient of their own that is not finite, by halving."""
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
