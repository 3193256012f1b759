"""From a golden example's input to the project's own function.

`ADAPTERS[element](**input)` returns something shaped like the example's `expected`. One thin
function an element: it only turns JSON lists into tensors and picks the named values. An element
that is not here is not built yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from learner.maths import advantages, losses
from tests.golden.engine_adapters import ENGINE_ADAPTERS
from tests.golden.toolsvc_adapters import TOOLSVC_ADAPTERS

Adapter = Callable[..., Any]


def _tensor(value: Any) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _group_advantage(rewards: Any, groups: Any, std: Any, eps: float, singleton: Any) -> Any:
    return advantages.group_advantage(rewards, groups, std=std, eps=eps, singleton=singleton)


def _reinforce_pp(token_rewards: Any, mask: Any, gamma: float) -> Any:
    returns, advantage = advantages.reinforce_pp(_tensor(token_rewards), _tensor(mask), gamma=gamma)
    return {"returns": returns.tolist(), "advantages": advantage.tolist()}


def _upstream_return(token_rewards: Any, mask: Any, gamma: float) -> Any:
    return advantages.returns_resetting_at_masks(
        _tensor(token_rewards), _tensor(mask), gamma=gamma
    ).tolist()


def _rfpp_baseline(rewards: Any, groups: Any, mask: Any) -> Any:
    return advantages.rfpp_baseline(rewards, groups, _tensor(mask)).tolist()


def _kl(logp: float, ref_logp: float) -> Any:
    out: dict[str, float] = {}
    for estimator in ("k1", "k2", "k3", "abs"):
        own = _tensor(logp).requires_grad_()
        value = losses.kl(own, _tensor(ref_logp), estimator)
        value.backward()
        out[estimator] = value.item()
        if estimator != "abs":
            assert own.grad is not None
            out[f"grad_{estimator}"] = own.grad.item()
    return out


def _ppo_clip(
    logp: float, old_logp: float, adv: float, clip_low: float, clip_high: float, dual_c: Any
) -> Any:
    out = losses.ppo_clip(
        _tensor(logp),
        _tensor(old_logp),
        _tensor(adv),
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=dual_c,
    )
    return {
        "ratio": out.ratio.item(),
        "loss": out.loss.item(),
        "clipped": int(out.clipped),
        "dual_clipped": int(out.dual_clipped),
    }


def _loss_agg(loss: Any, mask: Any, norm: float) -> Any:
    values, live = _tensor(loss), _tensor(mask)
    counts = [int(count) for count in live.sum(-1)]
    modes = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-sum-token-sum-norm")
    return {
        mode: float(
            (_tensor(losses.token_weights(counts, mode, norm=norm))[:, None] * values * live).sum()
        )
        for mode in modes
    }


def _gspo(logp: Any, old_logp: Any, adv: Any, mask: Any, clip_low: float, clip_high: float) -> Any:
    live = _tensor(mask)
    ratios, loss = losses.gspo(
        _tensor(logp), _tensor(old_logp), _tensor(adv), live, clip_low=clip_low, clip_high=clip_high
    )
    counts = [int(count) for count in live.sum(-1)]
    weights = _tensor(losses.token_weights(counts, "seq-mean-token-mean"))
    return {
        "s": ratios.tolist(),
        "seq_loss": ((loss * live).sum(-1) / live.sum(-1)).tolist(),
        "loss": float((weights[:, None] * loss * live).sum()),
    }


def _cispo(logp: float, old_logp: float, adv: float, clip_low: float, clip_high: float) -> Any:
    own = _tensor(logp).requires_grad_()
    weight, loss = losses.cispo(
        own, _tensor(old_logp), _tensor(adv), clip_low=clip_low, clip_high=clip_high
    )
    loss.backward()
    assert own.grad is not None
    return {"weight": weight.item(), "loss": loss.item(), "grad_wrt_logp": own.grad.item()}


def _rollout_correction(
    train_logp: Any, rollout_logp: Any, mask: Any, mode: Any, upper: float, lower: Any
) -> Any:
    weights, kept = losses.rollout_correction(
        _tensor(train_logp), _tensor(rollout_logp), _tensor(mask), mode, upper=upper, lower=lower
    )
    return {"weights": weights.tolist(), "mask": kept.tolist()}


def _rejection_k3(log_ratio: Any, mask: Any, threshold: float) -> Any:
    k3, mean, keep = losses.rejection_k3(_tensor(log_ratio), _tensor(mask), threshold)
    return {"k3": k3.tolist(), "seq_mean": mean.item(), "keep": bool(keep)}


def _decoupled_ppo(
    logp: float,
    prox_logp: float,
    behave_logp: float,
    adv: float,
    clip_low: float,
    clip_high: float,
    cap: float,
    cap_mode: Any,
) -> Any:
    clip = losses.ppo_clip(
        _tensor(logp), _tensor(prox_logp), _tensor(adv), clip_low=clip_low, clip_high=clip_high
    )
    weight = losses.behaviour_weight(
        _tensor(prox_logp), _tensor(behave_logp), cap=cap, cap_mode=cap_mode
    )
    return {
        "ratio": clip.ratio.item(),
        "behave_weight": weight.item(),
        "loss": (weight * clip.loss).item(),
    }


LEARNER_ADAPTERS: dict[str, Adapter] = {
    "common.group_advantage": _group_advantage,
    "common.rloo": advantages.rloo,
    "common.reinforce_pp": _reinforce_pp,
    "common.reinforce_pp_upstream_return": _upstream_return,
    "common.rfpp_baseline": _rfpp_baseline,
    "common.opo": advantages.opo,
    "common.kl": _kl,
    "common.ppo_clip": _ppo_clip,
    "common.loss_agg": _loss_agg,
    "common.gspo": _gspo,
    "common.cispo": _cispo,
    "common.rollout_correction": _rollout_correction,
    "common.rejection_k3": _rejection_k3,
    "common.decoupled_ppo": _decoupled_ppo,
}

ADAPTERS: dict[str, Adapter] = {**LEARNER_ADAPTERS, **ENGINE_ADAPTERS, **TOOLSVC_ADAPTERS}
