"""Which keys of the learner's tables are read under which settings; the others always are.

`engine check` warns of a key that a user set and nobody reads. What is said here has to be what the
formulas do: a test changes each key and compares losses and advantages.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolwright.recipe.models.table import ON, Case

GRPO: Case = {"learner.advantage.estimator": ("grpo",)}
COMPARED: Case = {"learner.credit.turns": ("anchor", "position", "group")}
CREDITED: Case = {"learner.credit.turns": ("anchor", "position", "group", "alone")}
ANCHORED: Case = {"learner.credit.turns": ("anchor",)}
CLIPPED: Case = {"learner.loss.kind": ("ppo", "gspo", "cispo", "gmpo")}
GATED: Case = {"learner.loss.kind": ("sapo",)}
BROADCAST: Case = {"learner.publish.way": ("group",)}
DECOUPLED: Case = {"run.correction": ("decoupled",)}
DECAYS = ("linear", "cosine")

LEARNER: Mapping[str, tuple[Case, ...]] = {
    "learner.advantage.std": (GRPO,),
    "learner.advantage.eps": (
        {**GRPO, "learner.advantage.std": ("population", "sample")},
        {**GRPO, "learner.advantage.singleton": ("raw",)},
        {**COMPARED, "learner.credit.std": ("population", "sample")},
    ),
    "learner.advantage.singleton": (GRPO,),
    "learner.advantage.discount": ({"learner.advantage.estimator": ("reinforce_pp",)},),
    "learner.advantage.per_data_source": (
        {"learner.advantage.estimator": ("reinforce_pp", "reinforce_pp_baseline")},
        {**COMPARED, "learner.credit.scope": ("batch",)},
        {**COMPARED, "learner.credit.singleton": ("batch",)},
    ),
    "learner.credit.weight": (CREDITED,),
    "learner.credit.discount": (CREDITED,),
    "learner.credit.outcome_in_return": (CREDITED,),
    "learner.credit.std": (COMPARED,),
    "learner.credit.singleton": (COMPARED,),
    "learner.credit.scope": (COMPARED,),
    "learner.credit.several": (ANCHORED,),
    "learner.credit.ignore": (ANCHORED,),
    "learner.credit.first_turn": (ANCHORED,),
    "learner.loss.clip_low": (CLIPPED,),
    "learner.loss.clip_high": (CLIPPED,),
    "learner.loss.dual_clip": ({"learner.loss.kind": ("ppo",)},),
    "learner.loss.tau_positive": (GATED,),
    "learner.loss.tau_negative": (GATED,),
    "learner.loss.norm": ({"learner.loss.aggregation": ("seq-sum-token-sum-norm",)},),
    "learner.loss.per_task": ({"tasks": ON},),
    "learner.conflict_every": ({"tasks": ON},),
    "learner.correction.upper": (
        {"run.correction": ("token_truncate", "token_mask", "seq_truncate", "geo_mask")},
        {"run.correction": ("bypass",), "learner.loss.kind": ("reinforce",)},
    ),
    "learner.correction.lower": ({"run.correction": ("token_mask", "geo_mask")},),
    "learner.correction.decoupled_cap": (DECOUPLED,),
    "learner.correction.decoupled_cap_mode": (DECOUPLED,),
    "learner.kl.place": ({"learner.kl.coefficient": ON},),
    "learner.kl.estimator": ({"learner.kl.coefficient": ON, "learner.kl.place": ("loss",)},),
    "learner.optimizer.muon_lr": ({"learner.optimizer.kind": ("muon",)},),
    "learner.optimizer.min_fraction": ({"learner.optimizer.decay": DECAYS},),
    "learner.publish.bucket_mib": (BROADCAST,),
    "learner.publish.address": (BROADCAST,),
    "learner.publish.port": (BROADCAST,),
    "learner.publish.timeout_s": (BROADCAST,),
    "learner.prefetch": ({"run.max_staleness": ON},),
}

SFT: Mapping[str, tuple[Case, ...]] = {
    "sft.optimizer.muon_lr": ({"sft.optimizer.kind": ("muon",)},),
    "sft.optimizer.min_fraction": ({"sft.optimizer.decay": DECAYS},),
    "sft.heldout.every": ({"sft.heldout.data": ON}, {"sft.heldout.fraction": ON}),
}
