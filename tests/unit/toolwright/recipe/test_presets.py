"""The presets that come with the package: they load, and hold what their papers print.

The values below were copied from the papers' tables by hand, not from the fragments.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from learner.config.tables import LearnerTable, SftTable
from tests.support.recipes import to_toml
from toolwright.recipe import Recipe, check_all, layers, load_recipe
from toolwright.recipe.layers import PACKAGED, packaged_fragments, read_layers

TABLES: dict[str, Any] = {
    "run": {"name": "r", "folder": "out"},
    "policy": {"model": "weights"},
    "task": {"source": "data.jsonl", "reward": "./my_reward.py:score"},
    "sampler": {"endpoints": ["http://127.0.0.1:1"]},
    "tools": {"python": {"service": "127.0.0.1:2"}},
    "engine": {"max_concurrent": 8},
}
SIZES = {"steps": 7, "groups_per_step": 3, "group_size": 4}
"""What a recipe says where its preset does not."""

GRPO: dict[str, Any] = {
    "learner.advantage.std": "sample",
    "learner.advantage.eps": 1e-6,
    "learner.loss.clip_low": 0.2,
    "learner.loss.clip_high": 0.2,
    "learner.loss.dual_clip": 0.0,
    "learner.loss.aggregation": "seq-mean-token-mean",
}
DAPO: dict[str, Any] = {
    "task.dynamic_sampling.metric": "",
    "learner.loss.clip_low": 0.2,
    "learner.loss.clip_high": 0.28,
    "learner.loss.dual_clip": 0.0,
    "learner.loss.aggregation": "token-mean",
}


def columns(**values: Any) -> dict[str, Any]:
    """The rows of VerlTool's table 14 under their keys."""
    prompt, response = values["lengths"]
    action, observation = values["turn"]
    batch, group = values["batch"]
    return {
        "run.groups_per_step": batch,
        "run.group_size": group,
        "learner.updates": batch // values["gradient"],
        "sampler.temperature": values.get("temperature", 1.0),
        "sampler.top_p": values.get("top_p", 1.0),
        "learner.optimizer.lr": values.get("lr", 1e-6),
        "task.limits.turns": values["turns"],
        "task.limits.model": prompt + response,
        "task.limits.response": response,
        "task.limits.action": action,
        "task.limits.observation": observation,
        "learner.kl.coefficient": values.get("kl", 0.0),
        "task.protocol": "engine.api:Chat" if values.get("mtrl") else "engine.api:Tagged",
    }


VERLTOOL = {
    "math": columns(batch=(128, 16), gradient=128, turns=1, lengths=(1024, 3072), turn=(2048, 512)),
    "search": columns(
        batch=(512, 16), gradient=64, turns=2, lengths=(4096, 4096), turn=(2048, 1024), kl=1e-4
    ),
    "sql": columns(
        batch=(256, 5),
        gradient=256,
        turns=5,
        lengths=(4096, 4096),
        turn=(2048, 1024),
        temperature=0.6,
        top_p=0.95,
    ),
    "visual": columns(
        batch=(128, 8),
        gradient=128,
        turns=3,
        lengths=(16384, 16384),
        turn=(2048, 8192),
        mtrl=True,
    ),
    "deepsearch": columns(
        batch=(128, 16), gradient=128, turns=5, lengths=(2048, 8196), turn=(8196, 4096)
    ),
    "swe": columns(
        batch=(32, 8),
        gradient=32,
        turns=100,
        lengths=(10240, 22528),
        turn=(10240, 10240),
        lr=2e-6,
        mtrl=True,
    ),
}
SEARL: dict[str, Any] = {
    "run.group_size": 8,
    "sampler.temperature": 0.7,
    "sampler.top_p": 0.98,
    "sampler.repetition_penalty": 1.05,
    "task.limits.turns": 5,  # six actions
    "task.limits.policy": 2048,
    "learner.optimizer.lr": 1e-6,
    "learner.kl.coefficient": 0.0,
}
WANTED: Mapping[str, Mapping[str, Any]] = {
    "grpo": GRPO,
    "dapo": DAPO,
    **{f"vt_{task}": {**GRPO, **values} for task, values in VERLTOOL.items()},
    **{f"vt_{task}_dapo": {**GRPO, **values, **DAPO} for task, values in VERLTOOL.items()},
    "searl_paper": {
        **SEARL,
        "run.groups_per_step": 384,
        "learner.advantage.std": "population",
        "learner.advantage.eps": 0.0,
        "learner.advantage.singleton": "zero",
        "learner.credit.turns": "anchor",
        "learner.credit.std": "population",
        "learner.credit.singleton": "zero",
        "learner.credit.discount": 0.5,
        "learner.credit.weight": 1.0,
        "learner.credit.several": "mean",
        "learner.credit.scope": "prompt",
    },
    "searl_released": {
        **SEARL,
        "run.groups_per_step": 256,
        "learner.advantage.std": "none",
        "learner.advantage.singleton": "raw",
        "learner.credit.turns": "released",
        "learner.credit.first_turn": True,
        "learner.credit.discount": 0.5,
        "learner.credit.weight": 1.0,
        "learner.credit.padded_turns": 6,
    },
    "mtr_sft": {
        "sft.epochs": 2,
        "sft.steps": None,
        "sft.batch_size": 128,
        "sft.max_length": 32768,
        "sft.train_on": "assistant",
        "sft.precision": "bfloat16",
        "sft.optimizer.lr": 3e-6,
        "sft.optimizer.warmup_ratio": 0.05,
        "sft.optimizer.decay": "cosine",
    },
    "mtr_grpo": {
        **GRPO,
        "run.groups_per_step": 128,
        "run.group_size": 8,
        "sampler.temperature": 1.0,
        "task.limits.turns": 12,
        "task.limits.response": 4096,
        "learner.optimizer.lr": 1e-6,
        "learner.kl.coefficient": 0.01,
        "learner.kl.estimator": "k3",
    },
    "se_search_3b": {
        **GRPO,
        "run.steps": 320,
        "run.groups_per_step": 256,
        "run.group_size": 10,
        "sampler.temperature": 1.0,
        "sampler.top_p": 0.95,
        "task.limits.turns": 5,
        "task.limits.observation": 512,
        "task.limits.action": 2048,
        "task.limits.response": 8192,
        "learner.optimizer.lr": 1e-6,
        "learner.kl.coefficient": 0.001,
        "learner.kl.estimator": "k3",
    },
    "search_r1": {
        **GRPO,
        "run.groups_per_step": 512,
        "run.group_size": 5,
        "learner.updates": 2,
        "task.limits.turns": 2,
        "task.limits.action": 500,
        "task.limits.observation": 500,
        "learner.loss.aggregation": "token-mean",
        "learner.loss.dual_clip": 0.0,
        "learner.optimizer.lr": 1e-6,
        "learner.optimizer.warmup_ratio": 0.285,
        "learner.kl.coefficient": 0.001,
    },
    "auto_refine": {
        **GRPO,
        "run.steps": 300,
        "run.groups_per_step": 256,
        "run.group_size": 5,
        "task.limits.turns": 5,
        "task.limits.action": 512,
        "task.limits.observation": 512,
        "learner.loss.aggregation": "token-mean",
        "learner.loss.dual_clip": 0.0,
        "learner.optimizer.lr": 1e-6,
        "learner.kl.coefficient": 0.001,
    },
    "arpo": {
        **GRPO,
        "run.group_size": 16,
        "task.branching.beam": 2,
        "task.branching.weight": 0.2,
        "task.branching.threshold": 0.5,
        "task.branching.tokens": 20,
        "task.branching.top_k": 10,
        "task.branching.agg": "sum",
        "learner.credit.branches": "soft",
    },
    "smoke": {"run.steps": 1, "run.groups_per_step": 2, "run.group_size": 2},
}


def load(folder: Path, *names: str) -> Recipe:
    """A whole recipe that extends presets and says only what they leave open."""
    files = [f"presets/{name}.toml" for name in names]
    file = folder / "recipe.toml"
    data = "[sft]\ndata = 'traces'\n" if "mtr_sft" in names else ""
    file.write_text(f"extends = {files}\n{to_toml(TABLES)}{data}", encoding="utf-8")
    said = read_layers(file).tables["run"]
    return load_recipe(file, [f"run.{key}={SIZES[key]}" for key in SIZES if key not in said])


def value(recipe: Recipe, key: str) -> Any:
    table, *path = key.split(".")
    found: Any
    if table == "learner":
        found = recipe.table("learner", LearnerTable)
    elif table == "sft":
        found = recipe.table("sft", SftTable)
    else:
        found = getattr(recipe.shared, table)
    for part in path:
        found = getattr(found, part)
    return found


def test_every_fragment_is_known_here() -> None:
    """Those in scale/ have a test of their own."""
    known = ("presets/scale/", "presets/suites/")
    papers = [name for name in packaged_fragments() if not name.startswith(known)]
    assert papers == sorted(f"presets/{name}.toml" for name in WANTED)


@pytest.mark.parametrize("name", WANTED)
def test_a_preset_makes_a_whole_recipe_with_its_papers_values(tmp_path: Path, name: str) -> None:
    recipe = load(tmp_path, name)
    assert check_all(recipe) == []
    assert {key: value(recipe, key) for key in WANTED[name]} == dict(WANTED[name])


@pytest.mark.parametrize("name", [name for name in WANTED if name != "smoke"])
def test_any_preset_with_smoke_is_small(tmp_path: Path, name: str) -> None:
    recipe = load(tmp_path, name, "smoke")
    assert check_all(recipe) == []
    shared, table = recipe.shared, recipe.table("learner", LearnerTable)
    assert (shared.run.steps, shared.run.batch, table.updates) == (1, 4, 1)
    assert shared.task.limits.model == 256
    assert table.loss == value(load(tmp_path, name), "learner.loss")


def test_every_fragment_says_where_its_values_are_from() -> None:
    (folder,) = (folder for folder in PACKAGED if folder.is_dir())
    for file in (folder / "presets").rglob("*.toml"):
        assert file.read_text(encoding="utf-8").startswith("# "), file


def test_a_wheel_is_looked_into_before_a_checkout() -> None:
    assert PACKAGED[0] == Path(layers.__file__).parents[1] / "recipes"
