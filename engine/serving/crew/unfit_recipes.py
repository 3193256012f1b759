"""Recipes that `engine serve` refuses with --workers, or with --backend ray."""

from __future__ import annotations

from engine.config import EngineTable
from engine.errors import StartupError
from toolwright.recipe import Recipe, task_key
from toolwright.rpc.options import is_unix


def refuse_workers(recipe: Recipe, table: EngineTable) -> None:
    """Raises StartupError for a recipe that needs all rollouts in the engine's own process."""
    shared = recipe.shared
    reasons = {
        f"{task_key(name)}.agent": "outside agents call the engine's own process"
        for name, task in shared.each_task.items()
        if task.agent is not None
    }
    if shared.run.share_gpu:
        reasons["run.share_gpu"] = "workers do not hand the samplers' memory over"
    if shared.run.publish_adapters:
        reasons["run.publish_adapters"] = "workers do not know which adapter a sampler has"
    if table.max_concurrent == "auto":
        reasons['engine.max_concurrent = "auto"'] = "workers do not report their cache's use"
    for key, why in reasons.items():
        raise StartupError(f"--workers with {key}: {why}; set --workers 0, or leave {key} out")


def refuse_ray(recipe: Recipe) -> None:
    """Raises StartupError for a recipe whose tool services other machines cannot reach."""
    for name, table in recipe.shared.tools.items():
        fix = f"set tools.{name}.service to an address that all nodes reach"
        if table.serve:
            raise StartupError(
                f"--backend ray with tools.{name}.serve: that service is on this machine alone; "
                f"start it yourself, and {fix}"
            )
        if is_unix(table.service):
            raise StartupError(
                f"--backend ray with tools.{name}.service = {table.service!r}: a Unix socket is on "
                f"this machine alone; {fix}"
            )
