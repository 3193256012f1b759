"""What stands in for the CUDA device where there is none.

Megatron-core names CUDA in buffers, optimizer, schedules and clipping. On a machine without it,
`install` lets the CPU answer for that name: requests for a "cuda" device give CPU tensors, streams
and synchronisation do nothing, the device's random generator is torch's own. Nothing of Megatron
is edited. With CUDA `install` looks whether TransformerEngine loads and chooses attention kernels;
the same learner code runs there.

Call `install` before Megatron is imported: then torch.compile is never started for its small
fused functions either, which on a CPU would want a C++ compiler and seconds of the start.

Does not know the learner. A tensor left on the wrong device cannot be noticed under it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_installed: list[TorchFunctionMode] = []


def install() -> None:
    """Prepares the process; a second call and a machine with CUDA change nothing more."""
    hide_what_is_broken("transformer_engine", "pytorch")
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
    """Where this rank's tensors live."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def has_cuda() -> bool:
    return bool(torch.cuda.is_available())


@cache
def joined(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its passes over memory joined by torch.compile; itself without CUDA.

    TORCH_COMPILE_DISABLE=1 leaves it as it is on CUDA too.
    """
    return torch.compile(function, dynamic=True) if has_cuda() else function


def most_bytes() -> int:
    """The most memory that this rank's tensors took on its GPU since the start; 0 without one."""
    return int(torch.cuda.max_memory_allocated()) if has_cuda() else 0


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
    """A stream on which everything has already happened."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None: ...

    def _nothing(self, *_args: Any) -> _Stream:
        return self  # an event on it has happened, too

    wait_stream = synchronize = record_event = wait_event = _nothing


def _names_cuda(value: Any) -> bool:
    if isinstance(value, str):
        return value.startswith("cuda")
    return isinstance(value, torch.device) and value.type == "cuda"


def _uncompiled(function: Callable[..., Any] | None = None, **_options: Any) -> Any:
    return function if function is not None else (lambda inner: inner)


def hide_what_is_broken(package: str, module: str) -> None:
    """Makes a package that is installed and cannot be imported look absent, aloud.

    Megatron falls back where the import fails as that of an absent package does. A library that
    does not load fails otherwise, and so would every place that asks whether it is installed.
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
            f"learner: {package} is installed and does not load ({reason}): going on without it",
            file=sys.stderr,
        )


def _stand_in_for(cuda: Any) -> None:
    # One function a name: torch's tracer refuses to register one object under two.
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
