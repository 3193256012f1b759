"""The output layer as log-probs and entropies of chosen tokens, never as logits of all of them.

The sampler draws from softmax(logits / T); every log-prob here divides by the same T of the
request. With a large vocabulary the logits are by far the largest tensor of a step, so targets go
through the layer in chunks of at most CHUNK_BYTES, and the backward pass computes each chunk again
(the last one is kept: what fits one chunk is computed once). Its gradient is written out: with
p = softmax(z), z = logits / T, H the entropy and incoming gradients g (log-prob) and e (entropy),

    dz_j = g (1[j = target] - p_j) - e p_j (log p_j + H).

Exact under tensor parallelism: each rank holds a slice of the vocabulary, and two small sums a
chunk cross ranks, in the forward pass only. float32 but for the products with bfloat16 weights.
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

Entropy = Literal["none", "metric", "loss"]
"""What entropies are for: zeros, values without a gradient, or part of the loss."""

CHUNK_BYTES = 128 << 20
"""Logits of one chunk in float32. Up to four such tensors live at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a forward gives.

    index: [n] int64, flat positions in the rows of the micro-batch whose logits predict the
    targets. targets: [n] int64 ids. temperature: [n] float32, or None where all are 1.
    """

    index: torch.Tensor
    targets: torch.Tensor
    temperature: torch.Tensor | None
    entropy: Entropy


class Head:
    """Takes the place of the output layer's forward.

    wanted: set before a forward of the network, which then returns [1, n, 2] float32: log-prob and
    entropy of each target. With None the network returns its logits.
    """

    def __init__(self, layer: Any | None) -> None:
        """layer: None on a pipeline stage that has no output layer, and is never asked."""
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

    Gradients of hidden are those of this rank's slice of the vocabulary.
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
        kept = None
        for part in _chunks(len(hidden), weight.shape[0]):
            kept = None  # frees the chunk before
            kept = logits = _scaled(hidden[part], weight, wanted.temperature, part)
            largest = logits.amax(-1)
            _reduce(largest, dist.ReduceOp.MAX)
            weights = (logits - largest.unsqueeze(-1)).exp_()
            sums = [weights.sum(-1), _pick(logits, local[part]) * here[part]]
            if wanted.entropy != "none":
                sums.append(torch.bmm(weights.unsqueeze(1), logits.unsqueeze(2)).flatten())
            del weights
            whole = _reduce(torch.stack(sums), dist.ReduceOp.SUM)
            partition[part] = whole[0].log() + largest
            logp[part] = whole[1] - partition[part]
            if wanted.entropy != "none":
                entropy[part] = partition[part] - whole[2] / whole[0]
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
        for part in _chunks(len(hidden), weight.shape[0]):
            if part.stop == len(hidden):
                logits = kept
            else:
                logits = _scaled(hidden[part], weight, wanted.temperature, part)
            of_target = for_logp[part].unsqueeze(-1)
            grad = (logits - partition[part].unsqueeze(-1)).exp_()
            if for_entropy is None:
                grad.mul_(-of_target)
            else:
                surprise = logits.sub_((partition[part] - entropy[part]).unsqueeze(-1))
                grad.mul_(surprise.mul_(-for_entropy[part].unsqueeze(-1)).sub_(of_target))
            grad.scatter_add_(-1, local[part].unsqueeze(-1), of_target * here[part].unsqueeze(-1))
            if wanted.temperature is not None:
                grad.div_(wanted.temperature[part].unsqueeze(-1))
            grad = grad.to(weight.dtype)
            torch.matmul(grad, weight, out=of_hidden[part])
            if of_weight is None:
                continue
            if weight.dtype is torch.float32:
                of_weight.addmm_(grad.t(), hidden[part])
            else:
                of_weight += grad.t() @ hidden[part]
        return of_hidden, None if of_weight is None else of_weight.to(weight.dtype), None


def _chunks(count: int, width: int) -> Iterator[slice]:
    """Slices of equal size over `count` targets whose logits are `width` wide; none for none."""
    if count:
        pieces = -(-count * width * 4 // CHUNK_BYTES)
        size = -(-count // pieces)
        for start in range(0, count, size):
            yield slice(start, min(count, start + size))


def _scaled(
    hidden: torch.Tensor, weight: torch.Tensor, temperature: torch.Tensor | None, part: slice
) -> torch.Tensor:
    logits = (hidden @ weight.t()).float()
    return logits if temperature is None else logits.div_(temperature[part].unsqueeze(-1))


def _local(targets: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """([n] ids inside this rank's slice of the vocabulary, [n] whether they are in it)."""
    local = targets - parallel_state.get_tensor_model_parallel_rank() * width
    return local.clamp(0, width - 1), (local >= 0) & (local < width)


def _pick(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return logits.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def _reduce(tensor: torch.Tensor, op: Any) -> torch.Tensor:
    group = parallel_state.get_tensor_model_parallel_group()
    if group.size() > 1:
        dist.all_reduce(tensor, op=op, group=group)
    return tensor
