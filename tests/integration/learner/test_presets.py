"""A preset with `smoke` trains: a tiny policy, two groups of two, one step, on the CPU."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from learner import run as loop
from tests.integration.learner.fake_engine import FakeEngine, random_group
from toolwright.recipe import load_recipe

pytestmark = pytest.mark.quick

RECIPE = """
extends = ["presets/vt_search_dapo.toml", "presets/smoke.toml"]
[run]
name = "smoke"
folder = "run"
engine = "{engine}"
[policy]
model = "{model}"
[task]
source = "none.jsonl"
reward = "none:none"
[sampler]
endpoints = ["http://127.0.0.1:1"]
[learner]
lease_wait_s = 0.2
"""


def test_a_preset_with_smoke_trains_a_step(tmp_path: Path, model_folder: Path) -> None:
    engine = FakeEngine(write=partial(random_group, size=2))
    try:
        text = RECIPE.format(engine=engine.address, model=model_folder)
        (tmp_path / "recipe.toml").write_text(text, encoding="utf-8")
        loop.run(load_recipe(tmp_path / "recipe.toml"))
    finally:
        engine.stop()
    (line,) = (
        json.loads(s)
        for s in (tmp_path / "run" / "learner.jsonl").read_text(encoding="utf-8").splitlines()
    )
    assert (line["groups"], line["trajectories"]) == (2, 4)
    assert line["skipped_update"] is False
    assert "kl_reference" in line  # the preset's own: smoke leaves the method alone
    resolved = json.loads((tmp_path / "run" / "learner.resolved.json").read_text(encoding="utf-8"))
    assert [Path(path).stem for path in resolved["extends"]] == [
        "grpo",
        "vt_search",
        "dapo",
        "vt_search_dapo",
        "smoke",
    ]
    assert resolved["learner"]["kl"]["coefficient"] == 1e-4
    assert resolved["learner"]["updates"] == 1
    assert resolved["shared"]["task"]["dynamic_sampling"]["max_gen_batches"] == 10
