"""What other trainers and papers call it, and what it is here: for those who come from there.

Of values: the words of verl, slime and of the papers themselves, in lower case with underscores. Of
keys: names of verl, slime, TRL, OpenRLHF and PEFT, by the key that they are here.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolwright.other_names import Names


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

LEARNER_KEYS: Names = {
    "tokens_per_microbatch": ("max_tokens_per_gpu", "ppo_max_token_len_per_gpu"),
    "checkpoint_every": ("save_freq", "save_interval", "save_steps"),
    "precision": ("dtype", "bf16"),
    "recompute": ("gradient_checkpointing", "enable_gradient_checkpointing"),
}
SFT_KEYS: Names = {
    **LEARNER_KEYS,
    "epochs": ("num_epochs", "num_train_epochs", "total_epochs"),
    "steps": ("max_steps", "total_training_steps"),
    "batch_size": ("train_batch_size", "global_batch_size"),
    "max_length": ("max_seq_length",),
}
OPTIMIZER_KEYS: Names = {
    "kind": ("name", "type", "optimizer"),
    "lr": ("learning_rate", "rate"),
    "clip": ("max_grad_norm", "grad_clip", "clip_grad"),
    "warmup_steps": ("warmup", "lr_warmup_steps", "num_warmup_steps"),
    "warmup_ratio": ("lr_warmup_ratio", "lr_warmup_steps_ratio"),
    "decay": ("schedule", "lr_scheduler", "lr_scheduler_type", "lr_decay_style"),
}
ADVANTAGE_KEYS: Names = {
    "estimator": ("adv_estimator", "advantage_estimator"),
    "std": ("norm_adv_by_std_in_grpo", "scale_rewards"),
    "discount": ("gamma",),
}
CREDIT_KEYS: Names = {"discount": ("gamma",), "weight": ("lambda", "lam")}
LOSS_KEYS: Names = {
    "kind": ("loss_mode", "loss_type"),
    "clip_low": ("epsilon", "clip_ratio", "clip_ratio_low", "eps_clip"),
    "clip_high": ("epsilon_high", "clip_ratio_high", "eps_clip_high"),
    "dual_clip": ("clip_ratio_c", "eps_clip_c"),
    "entropy": ("entropy_coef", "entropy_coeff"),
    "aggregation": ("loss_agg_mode",),
}
KL_KEYS: Names = {
    "coefficient": ("beta", "coef", "kl_coef", "kl_loss_coef"),
    "estimator": ("kl_loss_type", "kl_penalty"),
}
LORA_KEYS: Names = {
    "rank": ("r", "lora_rank"),
    "alpha": ("lora_alpha",),
    "targets": ("target_modules",),
}
PARALLEL_KEYS: Names = {
    "tensor": ("tp", "tp_size", "tensor_parallel", "tensor_model_parallel_size"),
    "pipeline": ("pp", "pp_size", "pipeline_parallel", "pipeline_model_parallel_size"),
    "context": ("cp", "cp_size", "context_parallel", "context_parallel_size"),
    "expert": ("ep", "ep_size", "expert_parallel", "expert_model_parallel_size"),
}
