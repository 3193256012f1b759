"""What keys and values of the shared tables are called elsewhere: for those who come from there.

Names of verl, VerlTool, slime, TRL, OpenRLHF and AReaL, by the key that they are here.
"""

from __future__ import annotations

from collections.abc import Mapping

Names = Mapping[str, tuple[str, ...]]

RUN: Names = {
    "group_size": ("n", "num_generations", "n_samples_per_prompt"),
    "groups_per_step": ("batch_size", "train_batch_size", "rollout_batch_size"),
    "steps": ("max_steps", "total_training_steps", "num_rollout"),
    "max_staleness": ("staleness", "max_head_offpolicyness"),
}
POLICY: Names = {"model": ("path", "model_path", "model_name_or_path", "pretrain")}
TASK: Names = {
    "source": ("data", "dataset", "train_files", "prompt_data"),
    "reward": ("reward_fn", "reward_function", "reward_func", "reward_manager"),
    "mask_overlong": ("mask_overlong_loss",),
    "mask_void": ("mask_void_traj",),
}
LIMITS: Names = {
    "turns": ("max_turns",),
    "action": ("max_tokens", "max_new_tokens", "max_action_length"),
    "observation": ("max_obs_length", "max_tool_response_length"),
    "response": ("max_response_length", "max_response_len", "max_completion_length"),
    "model": ("max_model_len", "max_model_length", "context_length", "max_seq_length"),
}
SAMPLER: Names = {"endpoints": ("endpoint", "url", "urls", "base_url")}
TOOL: Names = {
    "service": ("address", "endpoint", "url", "tool_server_url"),
    "serve": ("command",),
    "run_limit_s": ("timeout", "timeout_s", "tool_call_timeout"),
    "observation_keep": ("truncate_obs_side",),
}
ENGINE: Names = {
    "max_concurrent": ("max_concurrent_trajectories",),
    "observation_keep": ("truncate_obs_side",),
}
