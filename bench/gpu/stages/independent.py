"""A GRPO step that shares no line with the learner: float64, transformers, a hand-written AdamW.

The loss is the token mean of the dual-clipped surrogate. Its ratio is either to the sampler, or to
the weights at the start of the step. Truncated importance weights then correct for the sampler. An
optional k3 penalty pulls towards a reference. The bench and the learner's own tests use this step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
"""Limit of log-ratios, as in the learner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Result of a step."""

    loss: float
    norm: float
    """Global norm of the gradients before clipping."""
    gradients: dict[str, torch.Tensor]
    """By Hugging Face name, before clipping."""


def load(folder: Path, dtype: torch.dtype = torch.float64) -> Any:
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", trust_remote_code=False
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


def loss(
    model: Any,
    rows: Sequence[Row],
    *,
    to_sampler: bool = False,
    reference: Any = None,
    kl: float = 0.0,
    log_probs: Callable[[Any, Row], torch.Tensor] = log_probs,
) -> torch.Tensor:
    """Token mean over all targets.

    to_sampler: whether the ratio is to the sampler. log_probs: [T-1] log-probs of a row's tokens
    after the first.
    """
    parts = []
    for row in rows:
        chosen = torch.from_numpy(row.target[1:])
        new = log_probs(model, row)[chosen]
        sampled = torch.from_numpy(row.behaviour[1:]).double()[chosen]
        advantage = torch.from_numpy(row.advantage[1:]).double()[chosen]
        ratio = (new - (sampled if to_sampler else new.detach())).exp()
        surrogate = torch.maximum(
            -advantage * ratio, -advantage * ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
        )
        ceiling = -advantage * DUAL_CLIP
        part = torch.where((advantage < 0) & (surrogate > ceiling), ceiling, surrogate)
        if not to_sampler:
            weight = (new.detach() - sampled).clamp(-SAFE, SAFE).exp().clamp(max=LARGEST_WEIGHT)
            part = part * weight
        if kl:
            with torch.no_grad():
                anchor = log_probs(reference, row)[chosen]
            distance = new - anchor
            k3 = (-distance).clamp(-SAFE, SAFE).exp() - 1 + distance
            part = part + kl * k3.clamp(-10, 10)
        parts.append(part)
    return torch.cat(parts).mean()


class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019); vectors do not decay."""

    def __init__(self, model: Any, settings: Optimizer) -> None:
        self._parameters: dict[str, torch.Tensor] = dict(model.named_parameters())
        self._settings = settings
        self._steps = 0
        self._moments = {
            name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in self._parameters.items()
        }

    def step(self, mean: torch.Tensor) -> Step:
        """Moves the weights by the gradients of the mean loss, clipped by their global norm."""
        for parameter in self._parameters.values():
            parameter.grad = None
        mean.backward()  # type: ignore[no-untyped-call]
        gradients = {
            name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
            for name, p in self._parameters.items()
        }
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients.values()))
        settings, scale = self._settings, min(1.0, self._settings.clip / (norm + 1e-6))
        self._steps += 1
        corrected = [1 - beta**self._steps for beta in (settings.beta1, settings.beta2)]
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                if not parameter.requires_grad:
                    continue
                gradient, (first, second) = gradients[name] * scale, self._moments[name]
                first.mul_(settings.beta1).add_((1 - settings.beta1) * gradient)
                second.mul_(settings.beta2).add_((1 - settings.beta2) * gradient.square())
                if parameter.ndim > 1:
                    parameter.mul_(1 - settings.lr * settings.weight_decay)
                size = (second / corrected[1]).sqrt() + 1e-8
                parameter.sub_(settings.lr * first / corrected[0] / size)
        return Step(loss=float(mean.detach()), norm=norm, gradients=gradients)


def step(model: Any, reference: Any, rows: list[Row], settings: Optimizer, kl: float) -> Step:
    """Moves the model's weights by one AdamW update on all rows."""
    return AdamW(model, settings).step(loss(model, rows, reference=reference, kl=kl))
