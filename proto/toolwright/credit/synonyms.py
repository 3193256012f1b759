"""Words of other trainers and papers for names of the registries: the message for each.

`toolwright.recipe.diagnostics.synonyms` lays them beside those of synonyms.toml.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolwright.credit.corrections import CORRECTIONS
from toolwright.credit.entries import other_words
from toolwright.credit.estimators import ESTIMATORS
from toolwright.credit.losses import AGGREGATIONS, KL_ESTIMATORS, LOSSES

VALUES: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "run": {"correction": other_words(CORRECTIONS)},
    "loss": {
        "kind": {
            **{
                word: f"{entry.title} is an estimator with loss kind 'ppo': set "
                f"learner.advantage.estimator = {name!r}"
                for name, entry in ESTIMATORS.items()
                for word in (name, *entry.also)
            },
            **other_words(LOSSES),
        },
        "aggregation": other_words(AGGREGATIONS),
    },
    "advantage": {
        "estimator": {
            **{
                name: f"{entry.title} is a loss: set learner.loss.kind = {name!r}"
                for name, entry in LOSSES.items()
            },
            **other_words(ESTIMATORS),
        }
    },
    "kl": {"estimator": other_words(KL_ESTIMATORS)},
}
"""Table, key, word in lower case with underscores: the message."""
