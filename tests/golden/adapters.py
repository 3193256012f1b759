"""From a golden example's input to the project's own function.

`ADAPTERS[element](**input)` returns something shaped like the example's `expected`. One thin
function an element: it only turns JSON lists into tensors and picks the named values. An element
that is not here is not built yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from learner.config.objective import Correction, Loss, Reject
from learner.maths import branches, correction, returns
from learner.maths.aggregation import token_weights
from learner.maths.kl import kl
from learner.maths.losses import PolicyLoss, Tokens, loss_function
from learner.maths.turns import token_map
from tests.golden import published
from tests.golden.engine_adapters import ENGINE_ADAPTERS
from tests.golden.mtr_adapters import MTR_ADAPTERS
from tests.golden.search_adapters import SEARCH_ADAPTERS
from tests.golden.searl_adapters import SEARL_ADAPTERS
from tests.golden.tasks_adapters import TASKS_ADAPTERS
from tests.golden.toolsvc_adapters import TOOLSVC_ADAPTERS
from tests.golden.visual_adapters import VISUAL_ADAPTERS
from toolwright.credit import advantages, turns

Adapter = Callable[..., Any]


def _tensor(value: Any) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _group_advantage(rewards: Any, groups: Any, std: Any, eps: float, singleton: Any) -> Any:
    return advantages.group_advantage(rewards, groups, std=std, eps=eps, singleton=singleton)


def _reinforce_pp(token_rewards: Any, mask: Any, gamma: float) -> Any:
    gained, advantage = returns.reinforce_pp(_tensor(token_rewards), _tensor(mask), gamma=gamma)
    return {"returns": gained.tolist(), "advantages": advantage.tolist()}


def _upstream_return(token_rewards: Any, mask: Any, gamma: float) -> Any:
    return published.returns_resetting_at_masks(
        _tensor(token_rewards), _tensor(mask), gamma=gamma
    ).tolist()


def _rfpp_baseline(rewards: Any, groups: Any, mask: Any) -> Any:
    return returns.rfpp_baseline(rewards, groups, _tensor(mask)).tolist()


def _hard_attribution(action_tokens: Any, adv: Any) -> Any:
    spread = [[value] * len(own) for own, value in zip(action_tokens, adv, strict=True)]
    return branches.shared_mean(action_tokens, spread)


def _episode_advantage(
    outcome: Any, step_rewards: Any, std: Any, eps: float, singleton: Any
) -> Any:
    gained = [total + sum(steps) for total, steps in zip(outcome, step_rewards, strict=True)]
    groups = ["prompt"] * len(gained)
    adv = advantages.group_advantage(gained, groups, std=std, eps=eps, singleton=singleton)
    return {"returns": gained, "adv": adv}


def _step_advantage(
    trajectories: Any, gamma: float, canonical: Any, exclude: Any, **options: Any
) -> Any:
    labels = [
        [
            [canonical.get(a, a) for a in step["anchors"] if canonical.get(a, a) not in exclude]
            for step in steps
        ]
        for steps in trajectories
    ]
    gained = [turns.return_to_go([s["r"] for s in steps], gamma) for steps in trajectories]
    groups = turns.step_groups(labels)
    by_group, steps = turns.step_advantage(gained, groups, **options)
    return {
        "groups": {
            label: {
                "members": [list(member) for member in members],
                "returns": [gained[i][t] for i, t in members],
                "adv": by_group[label],
            }
            for label, members in groups.items()
        },
        "step_adv": steps,
    }


def _token_map(episode_adv: Any, step_adv: Any, action_spans: Any, lengths: Any, lam: float) -> Any:
    out = []
    for episode, steps, spans, length in zip(
        episode_adv, step_adv, action_spans, lengths, strict=True
    ):
        numbered = [(turn, start, end) for turn, (start, end) in enumerate(spans)]
        adv = token_map(episode, steps, numbered, length, lam)
        mask = token_map(1.0, [], numbered, length, 0.0)
        out.append({"adv": adv.tolist(), "mask": [int(mark) for mark in mask]})
    return out


def _loss(
    kind: str,
    logp: torch.Tensor,
    old: torch.Tensor,
    advantage: torch.Tensor,
    clip: dict[str, float],
    row: torch.Tensor | None = None,
) -> PolicyLoss:
    """The loss with an example's bounds, which a recipe may refuse."""
    rows = torch.zeros(logp.shape, dtype=torch.int64) if row is None else row
    tokens = Tokens(logp=logp, old=old, advantage=advantage, row=rows)
    return loss_function(kind)(tokens, Loss.model_construct(kind=kind, **clip))


def _kl(logp: float, ref_logp: float) -> Any:
    out: dict[str, float] = {}
    for estimator in ("k1", "k2", "k3", "abs"):
        own = _tensor(logp).requires_grad_()
        value = kl(own, _tensor(ref_logp), estimator)
        value.backward()
        out[estimator] = value.item()
        if estimator != "abs":
            assert own.grad is not None
            out[f"grad_{estimator}"] = own.grad.item()
    return out


def _ppo_clip(
    logp: float, old_logp: float, adv: float, clip_low: float, clip_high: float, dual_c: Any
) -> Any:
    clip = {"clip_low": clip_low, "clip_high": clip_high, "dual_clip": dual_c or 0.0}
    out = _loss("ppo", _tensor(logp), _tensor(old_logp), _tensor(adv), clip)
    return {
        "ratio": out.ratio.item(),
        "loss": out.loss.item(),
        "clipped": int(out.above | out.below),
        "dual_clipped": int(out.dual),
    }


def _loss_agg(loss: Any, mask: Any, norm: float) -> Any:
    values, live = _tensor(loss), _tensor(mask)
    counts = [int(count) for count in live.sum(-1)]
    modes = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-sum-token-sum-norm")
    return {
        mode: float(
            (_tensor(token_weights(counts, mode, norm=norm))[:, None] * values * live).sum()
        )
        for mode in modes
    }


def _gspo(logp: Any, old_logp: Any, adv: Any, mask: Any, clip_low: float, clip_high: float) -> Any:
    live = _tensor(mask) > 0
    row = live.nonzero()[:, 0]
    clip = {"clip_low": clip_low, "clip_high": clip_high}
    old = _tensor(old_logp)[live]
    found = _loss("gspo", _tensor(logp)[live], old, _tensor(adv)[row], clip, row)
    counts = [int(count) for count in live.sum(-1)]
    weights = _tensor(token_weights(counts, "seq-mean-token-mean"))
    return {
        "s": [found.ratio[row == number][0].item() for number in range(len(counts))],
        "seq_loss": [found.loss[row == number].mean().item() for number in range(len(counts))],
        "loss": float((weights[row] * found.loss).sum()),
    }


def _cispo(logp: float, old_logp: float, adv: float, clip_low: float, clip_high: float) -> Any:
    own = _tensor([logp]).requires_grad_()
    clip = {"clip_low": clip_low, "clip_high": clip_high}
    found = _loss("cispo", own, _tensor([old_logp]), _tensor([adv]), clip)
    found.loss.backward()
    assert own.grad is not None
    return {
        "weight": found.ratio.clamp(1 - clip_low, 1 + clip_high).item(),
        "loss": found.loss.item(),
        "grad_wrt_logp": own.grad.item(),
    }


def _rollout_correction(
    train_logp: Any, rollout_logp: Any, mask: Any, mode: Any, upper: float, lower: Any
) -> Any:
    bounds = Correction(upper=upper, lower=lower or 0.0)
    live = _tensor(mask) > 0
    train, rollout = _tensor(train_logp), _tensor(rollout_logp)
    kept = torch.zeros_like(live)
    for line in range(len(live)):
        here = live[line]
        kept[line, here] = correction.judge((train - rollout)[line, here], mode, bounds).kept
    row = kept.nonzero()[:, 0]
    weights = torch.zeros_like(train)
    weights[kept], _ = correction.weights(mode, train[kept], rollout[kept], row, bounds)
    return {"weights": weights.tolist(), "mask": kept.int().tolist()}


def _rejection_k3(log_ratio: Any, mask: Any, threshold: float) -> Any:
    values, live = _tensor(log_ratio), _tensor(mask) > 0
    k3 = correction.divergence(values, "k3")
    rule = Reject(statistic="k3", over="mean", upper=threshold)
    return {
        "k3": k3.tolist(),
        "seq_mean": k3[live].mean().item(),
        "keep": correction.passes(values[live], rule),
    }


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
    bounds = {"clip_low": clip_low, "clip_high": clip_high, "dual_clip": 0.0}
    clip = _loss("ppo", _tensor(logp), _tensor(prox_logp), _tensor(adv), bounds)
    weight, _ = correction.weights(
        "decoupled",
        _tensor([prox_logp]),
        _tensor([behave_logp]),
        torch.zeros(1, dtype=torch.int64),
        Correction(decoupled_cap=cap, decoupled_cap_mode=cap_mode),
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
    "common.arpo_hard_attribution": _hard_attribution,
    "searl.return_to_go": turns.return_to_go,
    "searl.episode_advantage": _episode_advantage,
    "searl.step_advantage": _step_advantage,
    "searl.total_and_token_map": _token_map,
    "searl.released_compat": published.whole_trajectory_credit,
}

ADAPTERS: dict[str, Adapter] = {
    **LEARNER_ADAPTERS,
    **ENGINE_ADAPTERS,
    **TOOLSVC_ADAPTERS,
    **SEARL_ADAPTERS,
    **TASKS_ADAPTERS,
    **SEARCH_ADAPTERS,
    **MTR_ADAPTERS,
    **VISUAL_ADAPTERS,
}
