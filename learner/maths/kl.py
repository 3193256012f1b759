"""Estimates of KL(policy || reference) from the policy's tokens, one function a name. Pure.

With d = logp - reference. Only the gradient of k2 is that of the reverse KL in expectation
(Schulman, "Approximating KL Divergence"). k3 is limited to +-10 and has no gradient beyond. k3+ has
the value of k3 and the gradient of k2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from learner.maths.ratios import limited
from toolwright.credit.losses import KlName

KL_LIMIT = 10.0


def _k2(d: torch.Tensor) -> torch.Tensor:
    return d.square() / 2


def _k3(d: torch.Tensor) -> torch.Tensor:
    return (limited(-d).exp() - 1 + d).clamp(-KL_LIMIT, KL_LIMIT)


def _k3_plus(d: torch.Tensor) -> torch.Tensor:
    k2 = _k2(d)
    return k2 - k2.detach() + _k3(d).detach()


ESTIMATES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "k1": lambda d: d,
    "k2": _k2,
    "k3": _k3,
    "k3+": _k3_plus,
    "abs": torch.abs,
}
"""[n] d -> [n] estimates, by the names of `toolwright.credit.losses.KL_ESTIMATORS`."""


def kl(logp: torch.Tensor, reference: torch.Tensor, estimator: KlName) -> torch.Tensor:
    """[n] estimates, one a token."""
    return ESTIMATES[estimator](logp - reference)
