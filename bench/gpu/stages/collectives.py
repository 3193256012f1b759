"""The process group of this device with one rank."""

from __future__ import annotations

import torch
import torch.distributed as dist

from bench.gpu.stages import Figures, Scale, independent
from bench.gpu.stages.models import small_model
from bench.gpu.stages.parity import FLOAT32_LIMIT, train_once
from learner.config.weights import Optimizer, Parallel
from learner.model.policy import load_policy
from learner.ranks import device, parallel


def collectives(_scale: Scale) -> Figures:
    """A sum, a gather and a broadcast return what was put in. Steps with and without overlap have
    the same gradient norms. The backend's name."""
    value = torch.arange(8.0, device=device.device())
    total = value.clone()
    dist.all_reduce(total)
    gathered = torch.empty_like(value)
    dist.all_gather_into_tensor(gathered, value)
    sent = value.clone()
    dist.broadcast(sent, src=0)
    if not all(torch.equal(one, value) for one in (total, gathered, sent)):
        raise AssertionError("a collective of one rank changed its input")
    parallel.barrier()
    return {
        "backend": dist.get_backend(),
        "ranks": dist.get_world_size(),
        "overlap": _overlap(),
    }


def _overlap() -> float:
    """Largest relative distance of gradient norms of three steps with a distributed optimizer."""
    folder = small_model("qwen3-tied")
    rows = independent.rows_near(folder, count=9, seed=3)
    norms = []
    for overlap in (False, True):
        layout = Parallel(distributed_optimizer=True, overlap=overlap)
        policy = load_policy(folder, Optimizer(lr=1e-3), "float32", layout=layout)
        norms.append([train_once(policy, rows, step=step).grad_norm for step in range(3)])
    distance: float = max(abs(a - b) / a for a, b in zip(*norms, strict=True))
    if distance > FLOAT32_LIMIT:
        raise AssertionError(f"overlap changes the gradient: {norms}")
    return distance
