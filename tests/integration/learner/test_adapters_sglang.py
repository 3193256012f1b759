"""A run that publishes its adapters alone into the real SGLang on CPU, through the real engine.

Every token of a step is sampled with the version that the step begins with (staleness 0), so the
sampler/learner gap of each step says whether the requests named that version's adapter.
"""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from learner import run as loop
from tests.contract import real_sampler
from tests.contract.test_adapters_sglang import FLAGS
from tests.integration.learner.test_group_sglang import (
    STEPS,
    VOCABULARY,
    serving,
    write_run,
)
from tests.integration.learner.test_run import metrics
from tests.support.policy import write_policy
from toolwright.recipe import load_recipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_sglang_samples_from_the_published_adapters(tmp_path: Path) -> None:
    model = write_policy(tmp_path / "model")
    real_sampler.write_model(model, 1, str(VOCABULARY))
    learner = {"optimizer": {"lr": 3e-3}, "lora": {"rank": 4}}
    with real_sampler.serve(model, tmp_path / "server.log", *FLAGS) as sglang:
        recipe = write_run(tmp_path / "here", model, sglang, learner, publish_adapters=True)
        with serving(recipe):
            loop.run(load_recipe(recipe))
        with urllib.request.urlopen(sglang + "/v1/models", timeout=60) as answer:
            models = json.load(answer)["data"]
    found = metrics(tmp_path / "here")
    assert [line["step"] for line in found] == list(range(1, STEPS + 1))
    for line in found:
        assert line["gap_tokens"] > 50
        assert line["gap_max"] < 1e-4
        assert line["grad_norm"] > 0
        assert line["paused_s"] == 0
    adapters = [one["id"] for one in models if one["parent"] is not None]
    assert adapters == [f"{found[-1]['lineage']}.{STEPS}"]
