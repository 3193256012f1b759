"""The learner's step against one that shares no line with it.

The other step is written here: transformers' own model, a log-softmax over whole rows, the clipped
loss of GRPO as the papers print it, torch's clipping and torch's AdamW.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

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
    """Rows whose behaviour log-probs lie around the policy's own, so that some ratios are inside
    the clip range and some are outside on either side."""
    rows = make_rows(6, seed=seed)
    draw = np.random.default_rng(seed)
    for row in rows:
        with torch.no_grad():
            row.behaviour[1:] = plain_log_probs(model, row).numpy()
        row.behaviour[:] += draw.normal(0, 0.5, size=len(row.tokens)).astype(np.float32)
    return rows


def plain_log_probs(model: Any, row: Row) -> torch.Tensor:
    """[T-1] log-probs of the tokens after the first."""
    tokens = torch.as_tensor(row.tokens, dtype=torch.long)
    logp = torch.log_softmax(model(tokens[None]).logits[0, :-1].float(), dim=-1)
    return logp[torch.arange(len(tokens) - 1), tokens[1:]]


def plain_loss(
    model: Any,
    rows: Sequence[Row],
    log_probs: Callable[[Any, Row], torch.Tensor] = plain_log_probs,
) -> torch.Tensor:
    """Token mean of the dual-clipped surrogate."""
    losses = []
    for row in rows:
        ratio = torch.exp(log_probs(model, row) - torch.from_numpy(row.behaviour[1:]))
        reward = np.broadcast_to(np.float32(row.advantage), row.tokens.shape)
        advantage = torch.from_numpy(reward[1:].copy())
        value = torch.minimum(
            ratio * advantage, ratio.clamp(1 - LOSS.clip_low, 1 + LOSS.clip_high) * advantage
        )
        floored = torch.maximum(value, 3.0 * advantage)
        value = torch.where(advantage < 0, floored, value)
        losses.append(-value[torch.from_numpy(row.target[1:])])
    return torch.cat(losses).mean()


def plain_optimizer(model: Any) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    return torch.optim.AdamW(
        [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}],
        lr=SETTINGS.lr,
        betas=(SETTINGS.beta1, SETTINGS.beta2),
        weight_decay=SETTINGS.weight_decay,
    )


def on_disk(model: Any, *, grad: bool = False) -> dict[str, torch.Tensor]:
    """Copies of the weights, or of their gradients, by the names in a folder: there every expert
    has its matrices, which transformers holds in one."""
    found = {}
    for name, parameter in model.named_parameters():
        value = (parameter.grad if grad else parameter).detach().clone()
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
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    optimizer = plain_optimizer(plain)
    clear = {n: torch.ones_like(p, dtype=torch.bool) for n, p in on_disk(plain).items()}
    for step in range(STEPS):
        rows = sampled_rows(plain, seed=step)
        loss = plain_loss(plain, rows)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        expected = on_disk(plain, grad=True)
        norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), SETTINGS.clip)
        assert norm > 2 * SETTINGS.clip, "the clipping changes nothing here"
        optimizer.step()

        splits = []
        for budget in (100_000, 60, 1):
            parts = micro_batches(weighed(rows), rank=0, ranks=1, budget=budget)
            stats = gradients(policy, parts, OBJECTIVE)
            assert stats["clipped_above"] + stats["clipped_below"] > 0
            assert stats["loss"] == pytest.approx(float(loss.detach()), abs=1e-5)
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
        assert done.grad_norm == pytest.approx(float(norm), abs=1e-5)
        # Adam's update has the size of the rate whatever the gradient's is. A gradient that is all
        # rounding, as that of a bias of the keys, has a sign by chance.
        for name, grad in expected.items():
            clear[name] &= (grad.abs() > 1e-5) | (grad == 0)
    found = named_weights(policy)
    trained = on_disk(plain)
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
