"""Counts where a step would make the host wait for a GPU, on a machine without one.

Under the stand-in for CUDA every tensor lies in host memory. So `HostWaits` follows the tensors
that would lie on the device: the given ones, those that are made or moved with a device, and every
result of them. A copy of such a tensor to the host is a wait, and so is an operator whose result
has a size that only the device knows.
"""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from learner.ranks import device

READS = {torch.Tensor.cpu, torch.Tensor.tolist, torch.Tensor.numpy}
SIZES = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2")
"""Operators that read the device, by the name of their overload packet."""


class HostWaits:
    """`found`: number of waits by the innermost line outside of torch."""

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        """known: tensors on the device."""
        self.found: Counter[str] = Counter()
        self._storages: dict[int, Any] = {}  # they live on, so that no other gets their address
        for tensor in known:
            self._add(tensor)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        with patch.object(device, "moved", self._moved), _Calls(self), _Operators(self):
            yield

    def has(self, values: Any) -> bool:
        return any(
            tensor.untyped_storage()._cdata in self._storages
            for tensor in tree_leaves(values)
            if isinstance(tensor, torch.Tensor)
        )

    def note(self) -> None:
        frames = [f for f in traceback.extract_stack() if "/torch/" not in f.filename]
        last = [f for f in frames if f.filename not in (__file__, device.__file__)][-1]
        self.found[f"{last.filename.rsplit('/', 1)[-1]}:{last.name}"] += 1

    def add_all(self, values: Any) -> None:
        for value in tree_leaves(values):
            if isinstance(value, torch.Tensor):
                self._add(value)

    def _add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = storage

    def _moved(self, value: Any, _where: torch.device) -> Any:
        own = ((field.name, getattr(value, field.name)) for field in fields(value))
        moved = {name: one.clone() for name, one in own if isinstance(one, torch.Tensor)}
        self.add_all(list(moved.values()))
        return replace(value, **moved)


class _Calls(TorchFunctionMode):
    """Factories with a device, and copies to the host."""

    def __init__(self, waits: HostWaits) -> None:
        super().__init__()
        self._waits = waits

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in READS and self._waits.has(args[0]) and args[0].numel():
            self._waits.note()
            return out.clone() if isinstance(out, torch.Tensor) else out
        if func is torch.Tensor.cuda or (kwargs and kwargs.get("device") is not None):
            out = out.clone() if func in (torch.Tensor.cuda, torch.Tensor.to) else out
            self._waits.add_all(out)
        return out


class _Operators(TorchDispatchMode):
    """Results of tensors on the device are on it; some operators read it."""

    def __init__(self, waits: HostWaits) -> None:
        super().__init__()
        self._waits = waits

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if not self._waits.has((args, kwargs)):
            return out
        name = func.overloadpacket.__name__
        by_mask = name in ("index", "index_put_") and any(
            one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1]
        )
        unsized = name == "repeat_interleave" and kwargs.get("output_size") is None
        if name in SIZES or by_mask or unsized:
            self._waits.note()
        self._waits.add_all(out)
        return out
