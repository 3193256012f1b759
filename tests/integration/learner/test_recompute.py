"""Recomputation changes the memory of a step and not its gradient."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from learner.config.weights import Lora, Optimizer, Projection, Recompute
from learner.model.policy import Policy, load_policy
from learner.training.batch import micro_batches
from learner.training.step import gradients, score
from tests.integration.learner.models import write_model
from tests.integration.learner.named import named_gradients
from tests.integration.learner.rows import make_rows, weighed
from tests.integration.learner.test_plain_step import OBJECTIVE, worst

pytestmark = pytest.mark.quick

WAYS: tuple[Recompute, ...] = ("selective", "full")
FORWARD: tuple[Projection, ...] = ("gate_proj", "up_proj", "down_proj")
"""Adapters of the feed-forward part alone: no gradient reaches the first layer's norm by itself."""


def adapter_gradients(policy: Policy) -> dict[str, torch.Tensor]:
    return {
        name: parameter.main_grad.clone()
        for name, parameter in policy.bare.adapters.named_parameters()
    }


@pytest.mark.parametrize("kind", ["qwen2-tied", "qwen3-untied", "moe-untied"])
def test_gradients_are_those_without_recompute(tmp_path: Path, one_rank: None, kind: str) -> None:
    folder = write_model(tmp_path / "model", kind)
    parts = micro_batches(weighed(make_rows(6)), rank=0, ranks=1, budget=60)
    plain = load_policy(folder, Optimizer(), "float32")
    loss = gradients(plain, parts, OBJECTIVE)["loss"]
    expected = named_gradients(plain)
    for way in WAYS:
        policy = load_policy(folder, Optimizer(), "float32", recompute=way)
        score(policy, make_rows(2), 60, "old")  # a forward pass without a gradient comes first
        assert gradients(policy, parts, OBJECTIVE)["loss"] == pytest.approx(loss, abs=1e-6)
        assert worst(named_gradients(policy), expected) < 1e-6


@pytest.mark.parametrize("lora", [Lora(rank=3), Lora(rank=3, targets=FORWARD)], ids=["all", "mlp"])
@pytest.mark.parametrize("kind", ["qwen2-tied", "qwen3-untied"])
def test_adapters_gradients_are_those_without_recompute(
    tmp_path: Path, one_rank: None, kind: str, lora: Lora
) -> None:
    folder = write_model(tmp_path / "model", kind)
    parts = micro_batches(weighed(make_rows(6)), rank=0, ranks=1, budget=60)
    found = {}
    for way in ("none", *WAYS):
        policy = load_policy(folder, Optimizer(), "float32", lora, recompute=way)
        torch.manual_seed(1)
        for parameter in policy.bare.adapters.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        gradients(policy, parts, OBJECTIVE)
        found[way] = adapter_gradients(policy)
    sizes = [float(gradient.abs().max()) for gradient in found["none"].values()]
    assert min(sizes) > 0
    for way in WAYS:
        assert worst(found[way], found["none"]) < 1e-6 * max(sizes), way
