"""Optimizer state and gradients in host memory between steps, for samplers on the same GPU.

Moments and float32 masters move; gradients are dropped, since the next step begins with zeros. The
weights stay: the samplers load them, and they are a ninth of a bfloat16 policy's states. Weights of
a float32 policy are their own masters, so they stay too.

A checkpoint can be written meanwhile: it reads the state wherever it lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch


class HostStates:
    """Moves the states of one policy. With CUDA the host memory is pinned and used again.

    optimizer: Megatron's chained optimizer. weights: the policy's. gradients: the buffers of all
    gradients.
    """

    def __init__(
        self,
        optimizer: Any,
        weights: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor],
        device: torch.device,
    ) -> None:
        self._optimizer = optimizer
        self._weights = {_storage(weight) for weight in weights}
        self._gradients = [(buffer, buffer.untyped_storage().nbytes()) for buffer in gradients]
        self._device = device
        self._pinned: dict[int, torch.Tensor] = {}
        self.away = False
        """Whether the states are in host memory."""

    def leave(self) -> None:
        """Frees the device's memory of the states."""
        if self.away:
            return
        for tensor in self._tensors():
            tensor.data = self._host(tensor)
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        for buffer, _size in self._gradients:
            buffer.untyped_storage().resize_(0)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        self.away = True

    def come_back(self) -> None:
        """The states are on the device again, to the bit; the gradients are zero."""
        if not self.away:
            return
        for tensor in self._tensors():
            tensor.data = tensor.data.to(self._device, non_blocking=True, copy=True)
        for buffer, size in self._gradients:
            buffer.untyped_storage().resize_(size)
            buffer.zero_()
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        self.away = False

    def _tensors(self) -> Iterator[torch.Tensor]:
        """Moments and masters. Step counts are scalars, which may lie in host memory anyway."""
        for part in self._optimizer.chained_optimizers:
            for group in part.optimizer.param_groups:
                for master in group["params"]:
                    if _storage(master) not in self._weights:
                        yield master
            for state in part.optimizer.state.values():
                for value in state.values():
                    if isinstance(value, torch.Tensor) and value.dim() > 0:
                        yield value

    def _host(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._device.type != "cuda":
            return tensor.detach().clone()
        kept = self._pinned.get(id(tensor))
        if kept is None:
            kept = torch.empty_like(tensor, device="cpu", pin_memory=True)
            self._pinned[id(tensor)] = kept
        return kept.copy_(tensor.detach(), non_blocking=True)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
