"""Counts live tensor storages: what a learner's step needs beside its states."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveTensors(TorchDispatchMode):
    """`peak`: largest sum of storages that exist at a time, in bytes, of those made inside.

    A storage that was emptied, as Megatron's checkpoints do, counts nothing.
    """

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        """known: tensors whose storages do not count."""
        super().__init__()
        self._known = {tensor.untyped_storage()._cdata for tensor in known}
        self._live: dict[int, weakref.ref[Any]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, torch.Tensor):
                self._count(value.untyped_storage())
        return out

    def _count(self, storage: Any) -> None:
        key = storage._cdata
        if key in self._known or key in self._live:
            return

        def freed(_: Any) -> None:
            del self._live[key]

        self._live[key] = weakref.ref(storage, freed)
        living = (reference() for reference in list(self._live.values()))
        self.peak = max(self.peak, sum(one.nbytes() for one in living if one is not None))


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Size of all storages, each once."""
    storages = {one._cdata: one.nbytes() for one in (t.untyped_storage() for t in tensors)}
    return sum(storages.values())
