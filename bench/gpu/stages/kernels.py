"""Fused kernels and recompute beside the plain path: the same gradients, time and memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch

from bench.gpu.stages import Figures, Scale, independent, machine
from bench.gpu.stages.models import random_rows, sized_model, small_model
from bench.gpu.stages.parity import train_once
from learner.config.weights import Fusions, Optimizer, Recompute
from learner.model.kernels import fusions
from learner.model.policy import Policy, load_policy
from learner.training.batch import Row

LIMIT = 1e-5
"""Largest distance of a float32 gradient from the plain path's, relative to its norm."""
TIMES = 3


def kernels(scale: Scale) -> Figures:
    """Distance of float32 gradients from the plain path's; seconds and peak of a bfloat16 step."""
    folder = small_model("qwen3-tied")
    rows = independent.rows_near(folder, count=9, seed=3)
    want, loss = _gradient(load_policy(folder, Optimizer(lr=0), "float32"), rows)
    distances: dict[str, float] = {}
    for name, fused, recompute in _ways():
        with _only(name):
            policy = load_policy(
                folder, Optimizer(lr=0), "float32", fused=fused, recompute=recompute
            )
        got, own_loss = _gradient(policy, rows)
        distances[name] = float((got - want).norm() / want.norm())
        if max(distances[name], abs(own_loss - loss)) > LIMIT:
            raise AssertionError(f"{name} is too far from the plain path: {distances}")
    size, tokens = ("tiny", 300) if scale.small else ("0.6B", 16_384)
    steps = {"plain": _step(size, tokens, "off", "none")}
    for name, fused, recompute in _ways():
        with _only(name):
            steps[name] = _step(size, tokens, fused, recompute)
    return {
        "selected": fusions.select("auto", images=False).summary,
        "distance": distances,
        "step": steps,
    }


def _ways() -> Iterator[tuple[str, Fusions, Recompute]]:
    for fusion in fusions.FUSIONS:
        if fusion.found():
            yield fusion.name, "on", "none"
    yield "all fusions", "auto", "none"
    yield "selective", "off", "selective"
    yield "selective, all fusions", "auto", "selective"
    yield "full", "off", "full"


@contextmanager
def _only(name: str) -> Iterator[None]:
    """The fusion of that name alone, or all of them."""
    one = tuple(fusion for fusion in fusions.FUSIONS if fusion.name == name)
    with patch.object(fusions, "FUSIONS", one or fusions.FUSIONS):
        yield


def _gradient(policy: Policy, rows: list[Row]) -> tuple[torch.Tensor, float]:
    """(all gradients of a step, its loss). The weights stay as they are: the rate is 0."""
    done = train_once(policy, rows)
    flat = torch.cat([buffer.flatten().double() for buffer in policy.gradient_buffers()])
    return flat / done.grad_norm, done.sums["loss"]


def _step(size: str, tokens: int, fused: Fusions, recompute: Recompute) -> Figures:
    """Seconds of the fastest of three steps, and the peak with the states, in GB."""
    rows = random_rows(size, tokens, tokens // 4)
    machine.forget_peak()
    policy = load_policy(
        sized_model(size), Optimizer(lr=1e-6), "bfloat16", fused=fused, recompute=recompute
    )
    seconds = []
    for step in range(TIMES):
        began = time.monotonic()
        train_once(policy, rows, step=step, budget=tokens)
        seconds.append(time.monotonic() - began)
    return {"s": round(min(seconds), 3), "peak_gb": machine.peak_gb()}
