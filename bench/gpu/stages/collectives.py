"""The process group of this device with one rank."""

from __future__ import annotations

import torch
import torch.distributed as dist

from bench.gpu.stages import Figures, Scale
from learner.ranks import device, parallel


def collectives(_scale: Scale) -> Figures:
    """A sum, a gather and a broadcast return what was put in; the backend's name."""
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
    return {"backend": dist.get_backend(), "ranks": dist.get_world_size()}
