"""Adapters (LoRA) on a CPU: SGLang's LoRA code pins host memory, which needs a GPU.

Pinned memory only speeds up copies to a GPU. Here it is ordinary memory: the constructors of
tensors ignore `pin_memory`.

It is an SGLang plugin (see the entry point in the dist-info folder beside it). It acts only in a
server with `--enable-lora`, and refuses an SGLang that it was not tried with.
"""

import sys
from collections.abc import Callable
from functools import wraps
from importlib.metadata import version
from typing import Any

import torch

TRIED = "0.5.23"
"""The SGLang whose LoRA code pins memory by these calls."""
CONSTRUCTORS = ("arange", "empty", "ones", "tensor", "zeros")


def register() -> None:
    """The plugin's entry point; SGLang calls it in each of its processes."""
    if "--enable-lora" not in sys.argv:
        return
    found = version("sglang")
    if found != TRIED:
        raise SystemExit(
            f"unpinned_memory.py was tried with SGLang {TRIED}, this is {found}: run "
            "tests/contract/test_adapters_sglang.py, then change TRIED"
        )
    for name in CONSTRUCTORS:
        setattr(torch, name, _unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda tensor, *_device: tensor  # type: ignore[method-assign]


def _unpinned(construct: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(construct)
    def constructed(*args: Any, **options: Any) -> Any:
        options.pop("pin_memory", None)
        return construct(*args, **options)

    return constructed
