"""The learner's step against the bench's, which shares no line with it (`bench.gpu`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.gpu.stages import independent
from learner.config.objective import Kl, Loss
from learner.config.weights import Optimizer
from learner.model.policy import load_policy
from learner.training.batch import Row, micro_batches
from learner.training.objective import PolicyObjective
from learner.training.step import gradients
from learner.training.update import improve
from tests.integration.learner.models import KINDS, write_model
from tests.integration.learner.named import named_gradients, named_weights
from tests.integration.learner.rows import make_rows, weighed

pytestmark = pytest.mark.quick

SETTINGS = Optimizer(lr=1e-3, beta1=0.9, beta2=0.95, weight_decay=0.1, clip=0.05)
LOSS = Loss(clip_low=0.2, clip_high=0.28, dual_clip=3.0)
OBJECTIVE = PolicyObjective(loss=LOSS, kl=Kl(), correction="bypass")
STEPS = 2


def sampled_rows(model: Any, seed: int) -> list[Row]:
    """Rows with behaviour log-probs around the policy's own: some ratios are outside of the clip
    range, on either side."""
    rows = make_rows(6, seed=seed)
    draw = np.random.default_rng(seed)
    for row in rows:
        with torch.no_grad():
            row.behaviour[1:] = independent.log_probs(model, row).numpy()
        row.behaviour[:] += draw.normal(0, 0.5, size=len(row.tokens)).astype(np.float32)
    return rows


def on_disk(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """float32 copies by the names in a folder, where every expert has its own matrices."""
    found = {}
    for name, tensor in tensors.items():
        value = tensor.detach().float().clone()
        stem, experts, matrix = name.rpartition("experts.")
        if not experts:
            found[name] = value
            continue
        for number, expert in enumerate(value):
            parts = ("gate_proj", "up_proj") if matrix == "gate_up_proj" else ("down_proj",)
            for part, half in zip(parts, expert.chunk(len(parts)), strict=True):
                found[f"{stem}experts.{number}.{part}.weight"] = half
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_two_steps_are_those_of_plain_torch(tmp_path: Path, one_rank: None, kind: str) -> None:
    """Loss, gradients and weights within 1e-5; any split into micro-batches within 1e-6."""
    folder = write_model(tmp_path / "model", kind)
    policy = load_policy(folder, SETTINGS, "float32")
    # transformers' experts take no float64.
    dtype = torch.float32 if kind.startswith("moe") else torch.float64
    plain = independent.load(folder, dtype).train()
    optimizer = independent.AdamW(plain, SETTINGS)
    clear = {
        name: torch.ones_like(p, dtype=torch.bool)
        for name, p in on_disk(dict(plain.named_parameters())).items()
    }
    for step in range(STEPS):
        rows = sampled_rows(plain, seed=step)
        want = optimizer.step(independent.loss(plain, rows, to_sampler=True))
        expected = on_disk(want.gradients)
        assert want.norm > 2 * SETTINGS.clip, "the clipping changes nothing here"

        splits = []
        for budget in (100_000, 60, 1):
            parts = micro_batches(weighed(rows), rank=0, ranks=1, budget=budget)
            stats = gradients(policy, parts, OBJECTIVE)
            assert stats["clipped_above"] + stats["clipped_below"] > 0
            assert stats["loss"] == pytest.approx(want.loss, abs=1e-5)
            splits.append((torch.tensor(stats["loss"]), named_gradients(policy)))
        assert len(parts) == len(rows)
        for other_loss, other in splits[1:]:
            assert abs(other_loss - splits[0][0]) < 1e-6
            assert worst(other, splits[0][1]) < 1e-6
        assert splits[0][1].keys() == expected.keys()
        assert worst(splits[0][1], expected) < 1e-5

        done = improve(
            policy,
            rows,
            OBJECTIVE,
            reference=None,
            updates=1,
            budget=60,
            step=step,
            steps=STEPS,
            drop_silent=False,
        )
        assert done.grad_norm == pytest.approx(want.norm, abs=1e-5)
        # Adam's update has the size of the rate whatever the gradient's is. A gradient that is all
        # rounding, as that of a bias of the keys, has a sign by chance.
        for name, grad in expected.items():
            clear[name] &= (grad.abs() > 1e-5) | (grad == 0)
    found = named_weights(policy)
    trained = on_disk(dict(plain.named_parameters()))
    assert found.keys() == trained.keys()
    assert sum(int(c.sum()) for c in clear.values()) > 0.9 * sum(c.numel() for c in clear.values())
    for name, weight in trained.items():
        difference = (found[name] - weight).abs()
        assert difference.max() < 2.5 * STEPS * SETTINGS.lr
        if clear[name].any():
            assert difference[clear[name]].max() < 1e-5, name


def worst(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Largest absolute difference of two sets of tensors."""
    return max(float((found[name] - value).abs().max()) for name, value in expected.items())
