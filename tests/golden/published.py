"""How public code computes some of the formulas: the golden examples compare it with ours.

They explain numbers that were published, where the code differs from the text that it goes with.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from toolwright.credit.advantages import centred
from toolwright.credit.turns import joined_advantage


def returns_resetting_at_masks(
    token_rewards: torch.Tensor, mask: torch.Tensor, *, gamma: float = 1.0
) -> torch.Tensor:
    """[B, T] returns of REINFORCE++ as verl computes them.

    The running return is multiplied with the mask, so every observation wipes out what the
    actions before it earned.
    """
    out = torch.zeros_like(token_rewards)
    running = torch.zeros(token_rewards.shape[0], dtype=token_rewards.dtype)
    for t in reversed(range(token_rewards.shape[1])):
        running = token_rewards[:, t] + gamma * running
        out[:, t] = running
        running = running * mask[:, t]
    return out


def whole_trajectory_credit(
    final: Sequence[float],
    step_rewards: Sequence[Sequence[float]],
    anchors: Sequence[Sequence[Sequence[str]]],
    *,
    padded_turns: int,
    gamma: float,
    lam: float,
) -> list[float]:
    """One number a trajectory, as SEARL's code credits the rollouts of a prompt."""
    steps = joined_advantage(step_rewards, anchors, discount=gamma, padded_turns=padded_turns)
    outcomes = centred(final, ["g"] * len(final))
    return [outcome + lam * step for outcome, step in zip(outcomes, steps, strict=True)]
