"""The device of this process, and a stand-in for CUDA on machines without it.

Megatron-core names CUDA in buffers, optimizer, schedules and clipping. On a machine without CUDA,
`install` maps that name to the CPU: requests for a "cuda" device give CPU tensors, streams and
synchronisation do nothing, the device's random generator is torch's own. Megatron's files are not
changed. With CUDA `install` checks that TransformerEngine loads and chooses attention kernels; the
same learner code runs there.

Call `install` before Megatron is imported. Then torch.compile does not start for its small fused
functions. On a CPU they would need a C++ compiler and seconds of the start.

Does not know the learner. Under the stand-in a tensor on the wrong device cannot be noticed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

import psutil
import torch
from torch.overrides import TorchFunctionMode

Value = TypeVar("Value", bound=Any)

_installed: list[TorchFunctionMode] = []


def install() -> None:
    """Prepares the process. May be called again."""
    hide_broken_package("transformer_engine", "pytorch")
    if torch.cuda.is_available():
        # cuDNN's attention makes a plan for each new length: 160 ms on an H100, where the flash
        # kernel takes 0.7 ms (bench/gpu/results).
        torch.backends.cuda.enable_cudnn_sdp(False)
        return
    if _installed:
        return
    if "OMP_NUM_THREADS" not in os.environ:
        # Sampler, tools and learner share the cores here: one thread each was measured fastest.
        torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module=r"megatron\..*|mbridge\..*")
    warnings.filterwarnings("ignore", message=".*Transformer Engine.*|.*Apex.*")
    torch.compile = _uncompiled  # type: ignore[assignment]
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].config.disable = True  # Megatron was imported already
    _stand_in_for(torch.cuda)
    _share_the_generator()
    mode = _CpuForCuda()
    mode.__enter__()  # type: ignore[no-untyped-call]
    _installed.append(mode)


def device() -> torch.device:
    """Device of this rank's tensors."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def moved(value: Value, where: torch.device) -> Value:
    """A dataclass with its tensors on a device. The copies wait neither for each other nor for the
    host."""
    if where.type == "cpu":
        return value
    own = ((field.name, getattr(value, field.name)) for field in fields(value))
    return replace(
        value,
        **{
            name: tensor.pin_memory().to(where, non_blocking=True)
            for name, tensor in own
            if isinstance(tensor, torch.Tensor)
        },
    )


def has_cuda() -> bool:
    return bool(torch.cuda.is_available())


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function fused by torch.compile on CUDA; unchanged without CUDA.

    TORCH_COMPILE_DISABLE=1 leaves it unchanged on CUDA too.
    """
    return torch.compile(function, dynamic=True) if has_cuda() else function


def peak_memory_bytes() -> int:
    """Peak memory of this rank's tensors on its GPU, in bytes; 0 without a GPU."""
    return int(torch.cuda.max_memory_allocated()) if has_cuda() else 0


@cache
def memory_bytes() -> int:
    """Memory of this rank's GPU, in bytes; 0 without a GPU."""
    return int(torch.cuda.get_device_properties(device()).total_memory) if has_cuda() else 0


def free_bytes() -> int:
    """Free memory of this rank's GPU, or of the machine, in bytes."""
    if has_cuda():
        return int(torch.cuda.mem_get_info()[0])
    return int(psutil.virtual_memory().available)


class _CpuForCuda(TorchFunctionMode):
    """Rewrites the device of every torch call that names CUDA."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if kwargs and _names_cuda(kwargs.get("device")):
            kwargs = {**kwargs, "device": "cpu"}
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.to and len(args) > 1 and _names_cuda(args[1]):
            args = (args[0], "cpu", *args[2:])
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            # Gradient clipping asserts this name.
            return func(*args).replace("torch.", "torch.cuda.")
        return func(*args, **(kwargs or {}))


class _Stream:
    """A stream whose work is always done."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None: ...

    def _nothing(self, *_args: Any) -> _Stream:
        return self  # also an event that is done

    wait_stream = synchronize = record_event = wait_event = _nothing


def _names_cuda(value: Any) -> bool:
    if isinstance(value, str):
        return value.startswith("cuda")
    return isinstance(value, torch.device) and value.type == "cuda"


def _uncompiled(function: Callable[..., Any] | None = None, **_options: Any) -> Any:
    return function if function is not None else (lambda inner: inner)


def hide_broken_package(package: str, module: str) -> None:
    """Makes an installed package that cannot be imported look absent, with a warning.

    Megatron falls back only if the import fails like that of an absent package. A library that does
    not load fails with other errors, and checks for an installed package would still find it.
    """
    if package in sys.modules or find_spec(package) is None:
        return
    try:
        import_module(f"{package}.{module}")
    except (ImportError, OSError, RuntimeError, AttributeError, AssertionError) as error:
        for name in [n for n in sys.modules if n.partition(".")[0] == package]:
            del sys.modules[name]
        sys.modules[package] = None  # type: ignore[assignment]
        reason = " ".join(str(error).split())[:200]
        print(
            f"learner: {package} is installed and does not load ({reason}): continuing without it",
            file=sys.stderr,
        )


def _stand_in_for(cuda: Any) -> None:
    # A function for each name: torch's tracer does not register one object under two names.
    for name in ("synchronize", "set_device", "empty_cache"):
        setattr(cuda, name, lambda *_args, **_kwargs: None)
    for module in (cuda, cuda.random):
        module.get_rng_state = lambda *_args, **_kwargs: torch.get_rng_state()
    cuda.manual_seed = lambda seed: torch.manual_seed(seed)
    cuda.current_device = lambda: "cpu"
    cuda.Stream = _Stream
    for name in ("current_stream", "default_stream"):
        setattr(cuda, name, lambda *_args: _Stream())
    cuda.stream = lambda *_args: contextlib.nullcontext()


def _share_the_generator() -> None:
    from megatron.core.tensor_parallel import random

    def get(device: Any = "cuda", clone: bool = False, graph_safe: bool = False) -> torch.Tensor:
        return torch.get_rng_state()

    def put(state: torch.Tensor, device: Any = -1, graph_safe: bool = False) -> None:
        torch.set_rng_state(state)

    random._get_cuda_rng_state = get
    random._set_cuda_rng_state = put
