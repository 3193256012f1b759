"""What the figures were measured on, and where this process keeps its temporary files."""

from __future__ import annotations

import sys
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

from bench.gpu.stages import Figures, Scale
from learner.ranks import device

GB = 1e9
PACKAGES = ("torch", "megatron-core", "mbridge", "transformers")


def machine(_scale: Scale) -> Figures:
    """Versions, device and free memory in GB."""
    figures: Figures = {
        "python": sys.version.split()[0],
        "cuda": torch.version.cuda,
        **{name: version(name) for name in PACKAGES},
    }
    if device.has_cuda():
        figures |= {
            "device": torch.cuda.get_device_name(),
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[no-untyped-call]
            "free_gb": round(torch.cuda.mem_get_info()[0] / GB, 1),
        }
    return figures


@cache
def folder() -> Path:
    """A temporary folder of this process; the driver removes it."""
    return Path(tempfile.mkdtemp(prefix="models-"))


def wait() -> None:
    """Returns when the device has done its work."""
    if device.has_cuda():
        torch.cuda.synchronize()


def forget_peak() -> None:
    """Begins a new measurement of the largest memory."""
    if device.has_cuda():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_gb() -> float:
    """Largest memory of tensors since `forget_peak`, in GB; 0 without CUDA."""
    return round(device.peak_memory_bytes() / GB, 2)
