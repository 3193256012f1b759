"""Where the workers of `engine serve` are: on this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

from engine.config import EngineTable
from engine.errors import StartupError
from engine.serving.crew.unfit_recipes import refuse_ray, refuse_workers
from toolwright.recipe import Recipe

if TYPE_CHECKING:
    from engine.serving.crew.processes.ray_workers import RayWorkers


class Backend(StrEnum):
    """Where workers are."""

    LOCAL = "local"
    """Processes of this machine."""
    RAY = "ray"
    """Actors on a Ray cluster."""


@contextmanager
def on_backend(
    backend: Backend, ray_address: str, workers: int, recipe: Recipe
) -> Iterator[RayWorkers | None]:
    """Context in which an engine may have workers there; None = those of this machine. Enter it
    before the event loop starts: connecting to a cluster takes seconds. Raises StartupError for
    options that do not fit together, an unfit recipe, and a cluster that cannot be used."""
    if backend is Backend.LOCAL:
        if ray_address:
            raise StartupError("--ray-address is for --backend ray: add it, or leave both out")
        yield None
        return
    if not workers:
        raise StartupError("--backend ray is for workers: add --workers N, or leave it out")
    if not ray_address:
        raise StartupError(
            "--backend ray needs --ray-address, host:port of the cluster's head; on one machine "
            "use --workers alone"
        )
    refuse_workers(recipe, recipe.table("engine", EngineTable))
    refuse_ray(recipe)
    from engine.serving.crew.processes.ray_workers import on_ray

    with on_ray(ray_address, workers) as made:
        yield made
