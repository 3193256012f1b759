"""Names of other trainers and papers for keys and values here, for users who come from there.

Values are words of verl, slime and the papers, in lower case with underscores; most stand in the
registries of `toolwright.credit`. Keys are names of verl, slime, TRL, OpenRLHF and PEFT.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolwright.credit.entries import other_words
from toolwright.credit.estimators import ESTIMATORS
from toolwright.credit.losses import AGGREGATIONS, KL_ESTIMATORS, LOSSES
from toolwright.other_names import Names

DR_GRPO = (
    "Dr. GRPO is estimator 'grpo' with learner.advantage.std = 'none', and loss kind 'ppo' with "
    "aggregation = 'seq-sum-token-sum-norm'"
)
DAPO = (
    "DAPO is estimator 'grpo' with loss kind 'ppo', clip_high = 0.28 and [task.dynamic_sampling]: "
    'extends = ["presets/grpo.toml", "presets/dapo.toml"]'
)
NO_CRITIC = "there is no critic here: advantages compare the rollouts of a group or of a batch"

COMPOSED: Mapping[str, str] = {"dr_grpo": DR_GRPO, "drgrpo": DR_GRPO, "dapo": DAPO}

KIND: Mapping[str, str] = {
    **{
        word: f"{entry.title} is an estimator with loss kind 'ppo': set "
        f"learner.advantage.estimator = {name!r}"
        for name, entry in ESTIMATORS.items()
        for word in (name, *entry.also)
    },
    **other_words(LOSSES),
    **COMPOSED,
}
ESTIMATOR: Mapping[str, str] = {
    **{
        name: f"{entry.title} is a loss: set learner.loss.kind = {name!r}"
        for name, entry in LOSSES.items()
    },
    **other_words(ESTIMATORS),
    **COMPOSED,
    "gigpo": "GiGPO is estimator 'grpo' with learner.credit.turns = 'anchor'",
    "gae": NO_CRITIC,
    "vapo": NO_CRITIC,
}
KL = other_words(KL_ESTIMATORS)
AGGREGATION = other_words(AGGREGATIONS)

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
