"""How public code computes some of the formulas: the golden examples compare it with ours.

They explain numbers that were published, where the code differs from the text that it goes with.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from toolwright.credit.advantages import centred
from toolwright.credit.turns import return_to_go


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
    """One number a trajectory, as SEARL's code assigns "step" credit to the rollouts of a prompt.

    Its groups hold trajectories and no turns: all that are connected by shared anchors, be it
    through others. Returns-to-go are averaged over the turns, padding included, nothing is divided
    by a deviation, and the term goes to every token.
    """
    count = len(final)
    means = []
    for rewards in step_rewards:
        padded = [*rewards, *[0.0] * (padded_turns - len(rewards))]
        means.append(sum(return_to_go(padded, gamma)) / padded_turns)
    part = list(range(count))
    names = [{name for turn in turns for name in turn} for turns in anchors]
    for first in range(count):
        for second in range(first):
            if names[first] & names[second]:
                old, new = part[first], part[second]
                part = [new if label == old else label for label in part]
    alone = [part.count(label) == 1 for label in part]
    steps = centred(means, part)
    return [
        outcome + (0.0 if lone else lam * step)
        for outcome, lone, step in zip(centred(final, ["g"] * count), alone, steps, strict=True)
    ]
