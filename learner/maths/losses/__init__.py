"""Losses of the policy: log-probabilities and advantages in, one number a token out.

Each loss is one file with a function `loss`, under its name in `toolwright.credit.losses.LOSSES`. A
new loss is a file here, an entry there, and its test.

Pure functions on the tokens that carry loss, [n] of one micro-batch. Gradients flow through `logp`
alone; everything else is a constant. Where tokens came from is not known here, and means are the
business of `learner.maths.aggregation`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

import torch

from learner.config.objective import Loss
from toolwright.credit.losses import LossName


class Tokens(NamedTuple):
    """[n] log-probs of the policy, [n] log-probs that the ratio is taken to, [n] advantages, and
    [n] the sequence of each token. Tokens of one sequence stand together."""

    logp: torch.Tensor
    old: torch.Tensor
    advantage: torch.Tensor
    row: torch.Tensor


class PolicyLoss(NamedTuple):
    """[n] losses, [n] importance ratios, and where the upper, lower or dual bound decided."""

    loss: torch.Tensor
    ratio: torch.Tensor
    above: torch.Tensor
    below: torch.Tensor
    dual: torch.Tensor


def loss_function(kind: LossName) -> Callable[[Tokens, Loss], PolicyLoss]:
    """The function `loss` of the file `kind`.py."""
    function: Callable[[Tokens, Loss], PolicyLoss] = import_module(f"{__name__}.{kind}").loss
    return function


def clipped(ratio: torch.Tensor, advantage: torch.Tensor, settings: Loss) -> PolicyLoss:
    """max(-A r, -A clip(r, 1 - low, 1 + high)) of [n] ratios."""
    plain = -advantage * ratio
    bounded = -advantage * ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    decided = bounded > plain
    return PolicyLoss(
        torch.maximum(plain, bounded),
        ratio,
        decided & (advantage > 0),
        decided & (advantage < 0),
        torch.zeros_like(decided),
    )
