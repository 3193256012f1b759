"""Which options and recipes `engine serve --backend ray` refuses, and which workers its actors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.errors import StartupError
from engine.serving.crew.processes.backends import Backend, on_backend
from engine.serving.crew.processes.ray_actor import (
    WorkerActor,
    WorkerRefused,
    WorkerStart,
    version_here,
)
from tests.support.recipes import merged, to_toml
from toolwright.recipe import Recipe, load_recipe

pytestmark = pytest.mark.quick

TABLES: dict[str, Any] = {
    "run": {"name": "a", "folder": "run", "steps": 1, "groups_per_step": 1, "group_size": 1},
    "policy": {"model": "policy"},
    "task": {"source": "questions.jsonl", "reward": "./reward.py:score"},
    "sampler": {"endpoints": ["http://10.0.0.1:30000"]},
    "tools": {"python": {"service": "10.0.0.1:50061"}},
}


def recipe_with(folder: Path, **changes: Any) -> Recipe:
    file = folder / "recipe.toml"
    file.write_text(to_toml(merged(TABLES, changes)), encoding="utf-8")
    return load_recipe(file)


@pytest.mark.parametrize(
    ("backend", "address", "workers", "says"),
    [
        (Backend.LOCAL, "10.0.0.1:6379", 2, "--ray-address is for --backend ray"),
        (Backend.RAY, "10.0.0.1:6379", 0, "add --workers N"),
        (Backend.RAY, "", 2, "needs --ray-address"),
        (Backend.RAY, "127.0.0.1", 2, "write it as host:port"),
        (Backend.RAY, "127.0.0.1:9", 2, r"no Ray cluster answers at 127\.0\.0\.1:9"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, backend: Backend, address: str, workers: int, says: str
) -> None:
    recipe = recipe_with(tmp_path)
    with pytest.raises(StartupError, match=says), on_backend(backend, address, workers, recipe):
        raise AssertionError("it is accepted")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"run": {"share_gpu": True}}, r"--workers with run\.share_gpu"),
        ({"tools": {"python": None, "own": {"serve": ("python",)}}}, r"tools\.own\.serve"),
        ({"tools": {"python": {"service": "unix:/run/t.sock"}}}, "a Unix socket is on this mach"),
    ],
)
def test_a_recipe_that_other_machines_cannot_serve_is_refused_before_ray_is_asked(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    recipe = recipe_with(tmp_path, **changes)
    with pytest.raises(StartupError, match=says), on_backend(Backend.RAY, "no:1", 2, recipe):
        raise AssertionError("it is accepted")


async def test_a_node_with_another_version_or_without_the_folder_starts_no_worker(
    tmp_path: Path,
) -> None:
    start = WorkerStart(
        coordinator="127.0.0.1:1",
        name="w1",
        credentials=b"",
        folder=str(tmp_path / "gone"),
        version=version_here(),
    )
    for wanted, says in (
        (start, "must be on every node under the same path"),
        (replace(start, version="0.0.1"), "install the same version on every node"),
    ):
        found = await WorkerActor().start(wanted)
        assert isinstance(found, WorkerRefused)
        assert says in found.sentence
