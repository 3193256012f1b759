"""What other trainers and papers call it, and what it is here: for wrong values of a recipe.

The words are those of verl, slime and of the papers themselves, in lower case with underscores.
"""

from __future__ import annotations

from collections.abc import Mapping


def _estimator(name: str, value: str) -> str:
    return (
        f"{name} is an estimator with loss kind 'ppo': set learner.advantage.estimator = '{value}'"
    )


def _loss(name: str, value: str) -> str:
    return f"{name} is a loss: set learner.loss.kind = '{value}'"


DR_GRPO = (
    "Dr. GRPO is estimator 'grpo' with learner.advantage.std = 'none', and loss kind 'ppo' with "
    "aggregation = 'seq-sum-token-sum-norm'"
)
DAPO = (
    "DAPO is estimator 'grpo' with loss kind 'ppo', clip_high = 0.28 and [task.dynamic_sampling]: "
    'extends = ["presets/grpo.toml", "presets/dapo.toml"]'
)
NO_CRITIC = "there is no critic here: advantages compare the rollouts of a group or of a batch"

KIND: Mapping[str, str] = {
    "grpo": _estimator("GRPO", "grpo"),
    "rloo": _estimator("RLOO", "rloo"),
    "opo": _estimator("OPO", "opo"),
    "reinforce_pp": _estimator("REINFORCE++", "reinforce_pp"),
    "reinforce++": _estimator("REINFORCE++", "reinforce_pp"),
    "reinforce_plus_plus": _estimator("REINFORCE++", "reinforce_pp"),
    "dr_grpo": DR_GRPO,
    "drgrpo": DR_GRPO,
    "dapo": DAPO,
    "vanilla": "this is 'ppo' here",
    "pg": "this is 'reinforce' here",
    "geo_mean": "this is 'gmpo' here",
}
ESTIMATOR: Mapping[str, str] = {
    "ppo": f"{_loss('PPO', 'ppo')}; {NO_CRITIC}",
    "gspo": _loss("GSPO", "gspo"),
    "cispo": _loss("CISPO", "cispo"),
    "sapo": _loss("SAPO", "sapo"),
    "gmpo": _loss("GMPO", "gmpo"),
    "reinforce": _loss("REINFORCE", "reinforce"),
    "reinforce++": "this is 'reinforce_pp' here",
    "reinforce_plus_plus": "this is 'reinforce_pp' here",
    "reinforce_plus_plus_baseline": "this is 'reinforce_pp_baseline' here",
    "dr_grpo": DR_GRPO,
    "drgrpo": DR_GRPO,
    "dapo": DAPO,
    "gigpo": "GiGPO is estimator 'grpo' with learner.credit.turns = 'anchor'",
    "gae": NO_CRITIC,
    "vapo": NO_CRITIC,
}
KL: Mapping[str, str] = {
    "kl": "this is 'k1' here",
    "mse": "this is 'k2' here",
    "low_var_kl": "this is 'k3' here",
    "low_var_kl+": "this is 'k3+' here",
}
AGGREGATION: Mapping[str, str] = {
    "seq_mean_token_sum_norm": "this is 'seq-sum-token-sum-norm' here",
}
