"""Keys of the learner's tables that are read under some settings only.

`engine check` warns of a key that a user set and no code reads. A test changes each key and
compares losses and advantages, so this table and the formulas cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolwright.credit.corrections import CORRECTIONS
from toolwright.credit.entries import names_reading
from toolwright.credit.estimators import ESTIMATORS
from toolwright.credit.losses import AGGREGATIONS, LOSSES
from toolwright.credit.turns import LABELLED
from toolwright.recipe.models.table import ON, Case


def _estimators(key: str) -> Case:
    return {"learner.advantage.estimator": names_reading(key, ESTIMATORS)}


def _corrections(key: str) -> Case:
    return {"run.correction": names_reading(key, CORRECTIONS)}


WITHOUT_RATIO: Case = {
    "run.correction": tuple(name for name, entry in CORRECTIONS.items() if not entry.weighs),
    "learner.loss.kind": tuple(name for name, entry in LOSSES.items() if not entry.has_ratio),
}
"""The loss has no ratio, so a weight corrects for the sampler even if the mode has no weight."""
COMPARED: Case = {"learner.credit.turns": LABELLED}
RELEASED: Case = {"learner.credit.turns": ("released",)}
CREDITED: Case = {"learner.credit.turns": (*LABELLED, "alone", "released")}
RETURNED: Case = {"learner.credit.turns": (*LABELLED, "alone")}
ANCHORED: Case = {"learner.credit.turns": ("anchor",)}
LINKED: Case = {"learner.credit.turns": ("anchor", "released")}
DECAYS = ("linear", "cosine")
DISTILLED: Case = {"learner.loss.kind": ("distill",)}

LEARNER: Mapping[str, tuple[Case, ...]] = {
    "learner.advantage.std": (_estimators("std"),),
    "learner.advantage.eps": (
        {**_estimators("eps"), "learner.advantage.std": ("population", "sample")},
        {**_estimators("eps"), "learner.advantage.singleton": ("raw",)},
        {**COMPARED, "learner.credit.std": ("population", "sample")},
    ),
    "learner.advantage.singleton": (_estimators("singleton"),),
    "learner.advantage.discount": (_estimators("discount"),),
    "learner.advantage.per_data_source": (
        _estimators("per_data_source"),
        {**COMPARED, "learner.credit.scope": ("batch",)},
        {**COMPARED, "learner.credit.singleton": ("batch",)},
    ),
    "learner.credit.weight": (CREDITED,),
    "learner.credit.discount": (CREDITED,),
    "learner.credit.outcome_in_return": (RETURNED,),
    "learner.credit.std": (COMPARED,),
    "learner.credit.singleton": (COMPARED,),
    "learner.credit.scope": (COMPARED,),
    "learner.credit.padded_turns": (RELEASED,),
    "learner.credit.several": (ANCHORED,),
    "learner.credit.ignore": (LINKED,),
    "learner.credit.first_turn": (LINKED,),
    **{
        f"learner.loss.{key}": ({"learner.loss.kind": names_reading(key, LOSSES)},)
        for key in ("clip_low", "clip_high", "dual_clip", "tau_positive", "tau_negative")
    },
    "learner.loss.unit": ({"learner.loss.aggregation": names_reading("unit", AGGREGATIONS)},),
    "learner.loss.norm": ({"learner.loss.aggregation": names_reading("norm", AGGREGATIONS)},),
    "learner.loss.per_task": ({"tasks": ON},),
    "learner.conflict_every": ({"tasks": ON},),
    "learner.correction.upper": (_corrections("upper"), WITHOUT_RATIO),
    "learner.correction.lower": (_corrections("lower"),),
    "learner.correction.decoupled_cap": (_corrections("decoupled_cap"),),
    "learner.correction.decoupled_cap_mode": (_corrections("decoupled_cap_mode"),),
    "learner.kl.place": ({"learner.kl.coefficient": ON},),
    "learner.kl.estimator": ({"learner.kl.coefficient": ON, "learner.kl.place": ("loss",)},),
    **{f"learner.distill.{key}": (DISTILLED,) for key in ("teacher", "coefficient", "reward")},
    "learner.distill.teachers": ({**DISTILLED, "tasks": ON},),
    "learner.optimizer.muon_lr": ({"learner.optimizer.kind": ("muon",)},),
    "learner.optimizer.min_fraction": ({"learner.optimizer.decay": DECAYS},),
    **{
        f"learner.publish.{key}": ({"learner.publish.way": ("group",)},)
        for key in ("bucket_mib", "address", "port", "timeout_s")
    },
    "learner.prefetch": ({"run.max_staleness": ON},),
}

_OF_REWARDS = {
    "advantage": ("estimator", "std", "eps", "singleton", "discount", "per_data_source"),
    "credit": (
        "turns", "weight", "discount", "outcome_in_return", "count_in_reward", "std", "singleton",
        "scope", "several", "ignore", "first_turn", "padded_turns", "branches",
    ),
}  # fmt: skip
OF_REWARDS = tuple(f"learner.{table}.{key}" for table, own in _OF_REWARDS.items() for key in own)
"""Keys that are read only if advantages of the reward count, in addition to their own cases."""
REWARDED: tuple[Case, ...] = (
    {"learner.loss.kind": tuple(name for name in LOSSES if name != "distill")},
    {"learner.distill.reward": ON},
)

SFT: Mapping[str, tuple[Case, ...]] = {
    "sft.optimizer.muon_lr": ({"sft.optimizer.kind": ("muon",)},),
    "sft.optimizer.min_fraction": ({"sft.optimizer.decay": DECAYS},),
    "sft.heldout.every": ({"sft.heldout.data": ON}, {"sft.heldout.fraction": ON}),
}
