"""The output layer as log-probs and entropies of chosen tokens, never as logits of all of them.

The sampler draws from softmax(logits / T); every log-prob here divides by the same T of the
request. With a large vocabulary the logits are by far the largest tensor of a step. So targets go
through the layer in chunks of at most `chunk_bytes`, and the backward pass computes each chunk
again. The last chunk is kept: a batch of one chunk is computed once. The gradient is written out.
With p = softmax(z), z = logits / T, H the entropy and incoming gradients g (of the log-prob) and e
(of the entropy),

    dz_j = g (1[j = target] - p_j) - e p_j (log p_j + H).

Exact under tensor parallelism: each rank holds a slice of the vocabulary, and two small sums a
chunk cross ranks, in the forward pass only. Numbers are float32; products with bfloat16 weights
read bfloat16 and write float32 where the device can.

Plain torch reads and writes a chunk many times. With CUDA torch.compile fuses these passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
)

from learner.ranks import device
from toolwright.model import learner_memory

Entropy = Literal["none", "metric", "loss"]
"""Use of entropies: zeros, values without a gradient, or part of the loss."""


def chunk_bytes() -> int:
    """Largest size of one chunk's logits in float32 on this rank's device, in bytes."""
    return learner_memory.chunk_bytes(cuda=device.memory_bytes())


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The targets of a forward pass."""

    index: torch.Tensor
    """[n] int64, flat positions in the micro-batch whose logits predict the targets."""
    targets: torch.Tensor
    """[n] int64 ids."""
    temperature: torch.Tensor | None
    """[n] float32; None if all are 1."""
    entropy: Entropy


class Head:
    """Replaces the output layer's forward.

    Set `wanted` before a forward of the network. The network then returns [1, n, 2] float32:
    log-prob and entropy of each target. With None it returns its logits.
    """

    def __init__(self, layer: Any | None) -> None:
        """layer: None on a pipeline stage without output layer, which never calls it."""
        self.wanted: Wanted | None = None
        if layer is not None:
            self._layer = layer
            self._logits: Callable[..., Any] = layer.forward
            layer.forward = self

    def __call__(
        self, hidden: torch.Tensor, weight: torch.Tensor | None = None, **options: Any
    ) -> tuple[torch.Tensor, None]:
        """[s, b, h] hidden states -> [n, 1, 2]. weight: the shared one of tied embeddings."""
        wanted = self.wanted
        if wanted is None:
            logits: tuple[torch.Tensor, None] = self._logits(hidden, weight=weight, **options)
            return logits
        if self._layer.sequence_parallel:
            hidden = gather_from_sequence_parallel_region(hidden)
        # The index counts row by row, hence the transpose.
        rows = hidden.transpose(0, 1).reshape(-1, hidden.shape[-1]).index_select(0, wanted.index)
        if not self._layer.sequence_parallel:
            rows = copy_to_tensor_model_parallel_region(rows)
        logp, entropy = scores(rows, self._layer.weight if weight is None else weight, wanted)
        return torch.stack([logp, entropy], dim=-1).unsqueeze(1), None


def scores(
    hidden: torch.Tensor, weight: torch.Tensor, wanted: Wanted
) -> tuple[torch.Tensor, torch.Tensor]:
    """[n, h] hidden states, [v/tp, h] weight -> ([n] log-probs, [n] entropies in nats).

    The gradient of hidden is that of this rank's slice of the vocabulary.
    """
    out: tuple[torch.Tensor, torch.Tensor] = _Scores.apply(  # type: ignore[no-untyped-call]
        hidden, weight, wanted
    )
    return out


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, wanted: Wanted
    ) -> tuple[torch.Tensor, torch.Tensor]:
        local, here = _local(wanted.targets, weight.shape[0])
        logp, partition, entropy = hidden.new_zeros(3, len(hidden), dtype=torch.float32).unbind()
        sums_of = device.compiled(_sums)
        kept = None
        for part in _chunks(len(hidden), weight.shape[0]):
            kept = None  # frees the chunk before
            kept = logits = _scaled(hidden[part], weight, wanted.temperature, part)
            own, *sums = sums_of(logits, local[part], here[part], wanted.entropy != "none")
            largest = _reduce(own.clone(), dist.ReduceOp.MAX)
            # A rank's sums are relative to its own largest logit, the total to the largest of all.
            picked, *from_own = sums
            shift = (own - largest).exp()
            sums = [picked, *(part_sum * shift for part_sum in from_own)]
            whole = _reduce(torch.stack(sums), dist.ReduceOp.SUM)
            partition[part] = whole[1].log() + largest
            logp[part] = whole[0] - partition[part]
            if wanted.entropy != "none":
                entropy[part] = partition[part] - whole[2] / whole[1]
        if wanted.entropy != "loss":
            ctx.mark_non_differentiable(entropy)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(hidden, weight, partition, entropy, kept)
        ctx.wanted = wanted
        ctx.set_materialize_grads(False)
        return logp, entropy

    @staticmethod
    def backward(
        ctx: Any, *grads: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        hidden, weight, partition, entropy, kept = ctx.saved_tensors
        wanted: Wanted = ctx.wanted
        for_logp, for_entropy = grads
        if for_logp is None:
            for_logp = torch.zeros_like(partition)
        local, here = _local(wanted.targets, weight.shape[0])
        of_hidden = torch.zeros_like(hidden)
        of_weight = (
            torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        )
        grad_of = device.compiled(_gradient)
        for part in _chunks(len(hidden), weight.shape[0]):
            if part.stop == len(hidden):
                logits = kept
            else:
                logits = _scaled(hidden[part], weight, wanted.temperature, part)
            grad = grad_of(
                logits,
                local[part],
                here[part],
                partition[part],
                for_logp[part],
                None if for_entropy is None else for_entropy[part],
                entropy[part],
                None if wanted.temperature is None else wanted.temperature[part],
                weight.dtype,
            )
            torch.matmul(grad, weight, out=of_hidden[part])
            if of_weight is not None:
                _add_product(of_weight, grad.t(), hidden[part])
            del logits, grad  # before the next chunk's exist
        return of_hidden, None if of_weight is None else of_weight.to(weight.dtype), None


def _sums(
    logits: torch.Tensor, local: torch.Tensor, here: torch.Tensor, entropy: bool
) -> list[torch.Tensor]:
    """[n] each, from [n, v] logits z: largest z, z of the target (0 where another rank holds it),
    sum of e^(z - largest), and with `entropy` the sum of z e^(z - largest)."""
    largest = logits.amax(-1)
    weights = (logits - largest.unsqueeze(-1)).exp_()
    picked = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1) * here
    sums = [largest, picked, weights.sum(-1)]
    if entropy and logits.is_cuda:
        sums.append((weights * logits).sum(-1))
    elif entropy:  # avoids a third tensor of this size
        sums.append(torch.bmm(weights.unsqueeze(1), logits.unsqueeze(2)).flatten())
    return sums


def _gradient(
    logits: torch.Tensor,
    local: torch.Tensor,
    here: torch.Tensor,
    partition: torch.Tensor,
    for_logp: torch.Tensor,
    for_entropy: torch.Tensor | None,
    entropy: torch.Tensor,
    temperature: torch.Tensor | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    """[n, v] gradient of logits before their division by the temperature, in `dtype`."""
    of_target = for_logp.unsqueeze(-1)
    grad = (logits - partition.unsqueeze(-1)).exp_()
    if for_entropy is None:
        grad.mul_(-of_target)
    else:
        surprise = logits - (partition - entropy).unsqueeze(-1)
        grad.mul_(surprise.mul_(-for_entropy.unsqueeze(-1)).sub_(of_target))
    at_target = of_target * here.unsqueeze(-1)
    if logits.is_cuda:  # a scatter would not fuse with the other passes
        columns = torch.arange(logits.shape[1], device=logits.device)
        grad = grad + at_target * (columns == local.unsqueeze(-1))
    else:
        grad.scatter_add_(-1, local.unsqueeze(-1), at_target)
    if temperature is not None:
        grad.div_(temperature.unsqueeze(-1))
    return grad.to(dtype)


def _chunks(count: int, width: int) -> Iterator[slice]:
    """Slices of equal size over `count` targets whose logits are `width` wide."""
    if count:
        pieces = -(-count * width * 4 // chunk_bytes())
        size = -(-count // pieces)
        for start in range(0, count, size):
            yield slice(start, min(count, start + size))


def _scaled(
    hidden: torch.Tensor, weight: torch.Tensor, temperature: torch.Tensor | None, part: slice
) -> torch.Tensor:
    if device.has_cuda() and weight.dtype is not torch.float32:
        logits = torch.mm(hidden, weight.t(), out_dtype=torch.float32)
    else:
        logits = (hidden @ weight.t()).float()
    return logits if temperature is None else logits.div_(temperature[part].unsqueeze(-1))


def _local(targets: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """([n] ids inside this rank's slice of the vocabulary, [n] whether they are in it)."""
    local = targets - parallel_state.get_tensor_model_parallel_rank() * width
    return local.clamp(0, width - 1), (local >= 0) & (local < width)


def _add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """Adds left @ right to a float32 total, in place."""
    if right.dtype is torch.float32:
        total.addmm_(left, right)
    elif device.has_cuda():
        torch.addmm(total, left, right, out_dtype=torch.float32, out=total)
    else:
        total += left @ right


def _reduce(tensor: torch.Tensor, op: Any) -> torch.Tensor:
    group = parallel_state.get_tensor_model_parallel_group()
    if group.size() > 1:
        dist.all_reduce(tensor, op=op, group=group)
    return tensor
