"""A GRPO step that shares no line with the learner: float64, transformers, a hand-written AdamW.

Token mean of the dual-clipped surrogate against the current weights, weighted by truncated
importance weights against the sampler, and an optional k3 penalty towards a reference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from bench.gpu.stages.models import VOCABULARY
from learner.config.weights import Optimizer
from learner.training.batch import Row

CLIP_LOW, CLIP_HIGH, DUAL_CLIP, LARGEST_WEIGHT = 0.2, 0.28, 3.0, 2.0
SAFE = 20.0
"""Log ratios are cut here, as spec and learner do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """gradients: by Hugging Face name, before clipping."""

    loss: float
    norm: float
    gradients: dict[str, torch.Tensor]


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager", trust_remote_code=False
    )


def log_probs(model: Any, row: Row) -> torch.Tensor:
    """[T-1] log-probs of the tokens after the first, at the row's temperatures."""
    ids = torch.as_tensor(row.tokens)
    temperature = torch.as_tensor(row.temperature[1:], dtype=torch.float64)
    logits = model(ids[None]).logits[0, :-1] / temperature[:, None]
    return torch.log_softmax(logits, -1).gather(-1, ids[1:, None])[:, 0]


def rows_near(folder: Path, *, count: int, seed: int) -> list[Row]:
    """Rows whose behaviour log-probs lie around those of a slightly different policy."""
    draw = np.random.default_rng(seed)
    model = load(folder)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.Generator().manual_seed(parameter.numel())
            parameter.add_(
                torch.randn(parameter.shape, generator=noise, dtype=torch.float64) * 0.01
            )
    rows = []
    for number in range(count):
        length = int(draw.integers(6, 70))
        target = np.zeros(length, dtype=bool)
        place = int(draw.integers(1, 4))
        while place < length:
            run = int(draw.integers(1, 9))
            target[place : place + run] = True
            place += run + int(draw.integers(0, 6))
        length = int(np.flatnonzero(target)[-1]) + 1
        target = target[:length]
        advantage = draw.normal(0, 1) + 0.5 * draw.normal(0, 1, length)
        row = Row(
            trajectory=f"t{number}",
            tokens=draw.integers(0, VOCABULARY, length),
            target=target,
            behaviour=np.zeros(length, dtype=np.float32),
            temperature=np.full(length, draw.choice((1.0, 0.7, 1.3)), dtype=np.float32),
            fresh=target.copy(),
            advantage=np.where(target, advantage, 0).astype(np.float32),
        )
        with torch.no_grad():
            near = log_probs(model, row).numpy() + draw.normal(0, 0.2, length - 1)
        row.behaviour[1:] = near
        row.behaviour[~target] = 0
        rows.append(row)
    return rows


def step(model: Any, reference: Any, rows: list[Row], settings: Optimizer, kl: float) -> Step:
    """Moves the model's weights by one AdamW update on all rows."""
    tokens = sum(int(row.target.sum()) for row in rows)
    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        chosen = torch.from_numpy(row.target[1:])
        new = log_probs(model, row)[chosen]
        sampled = torch.from_numpy(row.behaviour[1:]).double()[chosen]
        advantage = torch.from_numpy(row.advantage[1:]).double()[chosen]
        ratio = (new - new.detach()).exp()
        loss = torch.maximum(
            -advantage * ratio, -advantage * ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
        )
        ceiling = -advantage * DUAL_CLIP
        loss = torch.where((advantage < 0) & (loss > ceiling), ceiling, loss)
        weight = (new.detach() - sampled).clamp(-SAFE, SAFE).exp().clamp(max=LARGEST_WEIGHT)
        loss = loss * weight
        if kl:
            with torch.no_grad():
                anchor = log_probs(reference, row)[chosen]
            distance = new - anchor
            k3 = (-distance).clamp(-SAFE, SAFE).exp() - 1 + distance
            loss = loss + kl * k3.clamp(-10, 10)
        total = total + loss.sum() / tokens
    total.backward()  # type: ignore[no-untyped-call]
    parameters = dict(model.named_parameters())
    gradients = {name: p.grad.clone() for name, p in parameters.items()}
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients.values()))
    scale = min(1.0, settings.clip / (norm + 1e-6))
    with torch.no_grad():
        for name, parameter in parameters.items():
            gradient = gradients[name] * scale
            if parameter.ndim > 1:
                parameter.mul_(1 - settings.lr * settings.weight_decay)
            # The first update: corrected moments are the gradient and its square.
            parameter.sub_(settings.lr * gradient / (gradient.abs() + 1e-8))
    return Step(loss=float(total.detach()), norm=norm, gradients=gradients)
