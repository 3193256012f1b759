"""The learner's gradient of one batch, as recorded and with every conversation encoded again.

Loss, advantages and correction are the defaults of a recipe: GRPO, clipped, with the ratio to the
sampler's log-probs. Both sides have the same text, so they have the same rewards and advantages.

A trainer that encodes again has two ways to choose the other columns:
- `by_index`: mask, log-probs and advantages stay at their index, as VerlTool's switch
  (`agent.retokenization`) leaves them. After the first change they belong to other tokens.
- `anew`: the mask follows the text, and log-probs are computed before the step. The ratio is 1, but
  the policy never wrote these tokens.

The weights do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.errors import BenchError
from bench.retokenisation.joint import Retokened
from bench.retokenisation.rows import by_index, by_text
from bench.retokenisation.types import Gradients, GradientSide
from learner.config.objective import Advantage, Credit, Kl, Loss
from learner.config.weights import Optimizer
from learner.credit.assign import assigned
from learner.errors import LearnerError
from learner.model.policy import Policy, load_policy
from learner.ranks import parallel
from learner.training.batch import Row, check_vocabulary, rows_of
from learner.training.minibatch import MiniBatch, counts_of
from learner.training.objective import PolicyObjective
from learner.training.step import score
from learner.training.update import finite_gradients
from toolwright.types import Group

BUDGET = 4096
"""Tokens in one forward pass."""
_CLIPPED = ("clipped_above", "clipped_below", "dual_clipped")


def gradients(folder: Path, groups: Sequence[Group], found: Sequence[Retokened]) -> Gradients:
    """The gradients of the policy in `folder`. found: every sequence of the groups.

    Raises BenchError if the batch has no advantage or the policy cannot be trained.
    """
    joint = {(one.trajectory, one.sequence): one for one in found}
    try:
        with parallel.ranks():
            policy = load_policy(folder, Optimizer(), "float32")
            ours = [
                row
                for group in groups
                for trajectory in group.trajectories
                for row in rows_of(trajectory, temperature=1.0)
            ]
            check_vocabulary(ours, int(policy.shape["vocabulary"]))
            ours, _ = assigned(ours, groups, Advantage(), Credit())
            if not any(row.has_signal for row in ours):
                raise BenchError(
                    "no group has members with different rewards, so the gradient is 0: take more "
                    "trajectories (--most), or a run that learns"
                )
            shifted, followed = [], []
            for row in ours:
                anew = joint[row.trajectory, row.sequence]
                shifted.append(by_index(row, anew))
                followed.append(by_text(row, anew))
            return Gradients(
                reward=float(np.mean([t.reward for g in groups for t in g.trajectories])),
                by_index=(_side(policy, ours), _side(policy, _there(shifted))),
                anew=(
                    _side(policy, _scored(policy, ours)),
                    _side(policy, _scored(policy, _there(followed))),
                ),
            )
    except LearnerError as error:
        raise BenchError(str(error)) from error


def _there(rows: Sequence[Row | None]) -> list[Row]:
    return [row for row in rows if row is not None]


def _scored(policy: Policy, rows: Sequence[Row]) -> list[Row]:
    """The rows with the learner's log-probs in place of the sampler's."""
    scored, _ = score(policy, rows, BUDGET, "old")
    return [replace(row, behaviour=row.old, old=None) for row in scored if row.old is not None]


def _side(policy: Policy, rows: Sequence[Row]) -> GradientSide:
    loss = Loss()
    part = MiniBatch(
        rows=list(rows), counts=counts_of(rows, drop_silent=False), loss=loss, all_rows=False
    )
    objective = PolicyObjective(loss=loss, kl=Kl(), correction="bypass")
    stats, norm, _ = finite_gradients(policy, part, objective, BUDGET)
    tokens = stats.get("tokens", 0.0)
    clipped = sum(stats.get(name, 0.0) for name in _CLIPPED)
    return GradientSide(
        norm=norm,
        gap=stats.get("gap", 0.0) / max(tokens, 1.0),
        clipped=clipped / max(tokens, 1.0),
        tokens=int(tokens),
    )
