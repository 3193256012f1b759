"""Imitation from a trajectories file: it learns, and goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from learner.errors import CheckpointError, DataError, TakenError
from learner.lock import only_learner
from learner.sft import order, sft
from tests.integration.learner.fake_engine import random_group
from tests.integration.learner.models import TEMPLATE, weights
from toolwright.recipe import Recipe, load_recipe
from toolwright.trajectory_files import write_trajectories
from toolwright.types import WeightVersion


def write_recipe(folder: Path, model: Path, **changes: Any) -> Recipe:
    """A recipe with an [sft] table; `changes` are dotted overrides with _ for the dot."""
    text = f"""
[run]
name = "test"
folder = "run"
steps = 4
groups_per_step = 3
group_size = 4
[policy]
model = "{model}"
[task]
source = "none.jsonl"
reward = "none:none"
[sampler]
endpoints = ["http://127.0.0.1:1"]
[sft]
data = "traces"
steps = 8
batch_size = 4
[sft.optimizer]
kind = "muon"
lr = 1e-2
muon_lr = 0.02
"""
    path = folder / "recipe.toml"
    path.write_text(text)
    return load_recipe(path, [f"{key}={value}" for key, value in changes.items()])


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Ten trajectories of random tokens."""
    version = WeightVersion(lineage="a", step=0)
    groups = [random_group(number, version, Path(), size=2) for number in range(5)]
    write_trajectories(tmp_path / "traces", [t for group in groups for t in group])
    return tmp_path / "traces"


def losses(folder: Path) -> list[float]:
    lines = (folder / "run" / "sft" / "sft.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def test_it_learns_and_leaves_a_whole_folder(
    tmp_path: Path, model_folder: Path, traces: Path
) -> None:
    final = sft(write_recipe(tmp_path, model_folder, **{"sft.steps": 30}))
    found = losses(tmp_path)
    assert len(found) == 30
    assert sum(found[-3:]) < 0.7 * sum(found[:3])
    assert (final / "chat_template.jinja").read_text() == TEMPLATE
    assert weights(final).keys() == weights(model_folder).keys()


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(
    tmp_path: Path, model_folder: Path, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sft(write_recipe(tmp_path, model_folder, **{"sft.output": "whole"}))
    again = {"run.folder": "other", "sft.output": "resumed", "sft.checkpoint_every": 3}
    recipe = write_recipe(tmp_path, model_folder, **again)
    calls = 0

    def die_after_five(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 5:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    from learner import sft as module

    real = module.finite_gradients
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "finite_gradients", die_after_five)
        sft(recipe)
    resumed = sft(recipe)
    first, second = weights(whole), weights(resumed)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_what_changed_between_two_starts_is_named(
    tmp_path: Path, model_folder: Path, traces: Path
) -> None:
    sft(write_recipe(tmp_path, model_folder, **{"sft.steps": 2}))
    with pytest.raises(CheckpointError, match="batch_size = 4, the recipe now says 2"):
        sft(write_recipe(tmp_path, model_folder, **{"sft.steps": 3, "sft.batch_size": 2}))


def test_a_second_imitation_in_the_folder_is_refused(
    tmp_path: Path, model_folder: Path, traces: Path
) -> None:
    recipe = write_recipe(tmp_path, model_folder)
    with only_learner(tmp_path / "run" / "sft"), pytest.raises(TakenError, match="another learner"):
        sft(recipe)
    assert not (tmp_path / "run" / "sft.resolved.json").exists()


def test_missing_and_empty_data_are_named(tmp_path: Path, model_folder: Path) -> None:
    with pytest.raises(DataError, match="engine render"):
        sft(write_recipe(tmp_path, model_folder))
    write_trajectories(tmp_path / "traces", [])
    with pytest.raises(DataError, match="no trajectory"):
        sft(write_recipe(tmp_path, model_folder))


def test_every_epoch_is_a_permutation_and_positions_are_absolute() -> None:
    picks = order(5, 3, 0)
    straight = [next(picks) for _ in range(20)]
    assert sorted(straight[:5]) == sorted(straight[5:10]) == list(range(5))
    later = order(5, 3, 7)
    assert [next(later) for _ in range(13)] == straight[7:]
