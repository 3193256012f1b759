"""Builds a task's lane as the recipe says."""

from __future__ import annotations

from engine.core.build import build_group_hook
from engine.core.rewards.rewards import Rewards
from engine.core.rollout.assignment import RolloutContext
from engine.serving.admission.group import Lane
from engine.serving.admission.places import Places
from engine.serving.journal.journal import Journal
from toolwright.recipe import Recipe


def build_lane(
    recipe: Recipe,
    rollout_context: RolloutContext,
    rewards: Rewards,
    places: Places,
    journal: Journal,
    *,
    patience: float,
) -> Lane:
    """The lane of the recipe's task."""
    return Lane(
        rollout_context=rollout_context,
        rewards=rewards,
        hook=build_group_hook(recipe),
        places=places,
        life=f"b{journal.boot}",
        patience=patience,
        keeper=journal.append,
        forget=journal.forget,
        stored=journal.blob,
        branching=recipe.shared.task.branching,
        seed=recipe.shared.run.seed,
        metadata=recipe.shared.task.metadata,
    )
