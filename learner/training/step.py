"""One forward and backward pass through Megatron's schedule, and forward-only scoring.

Megatron averages over micro-batches and data-parallel ranks. This module owns the scaling that
turns the averages into the sum that the token weights need. Does not know losses or recipes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from megatron.core.pipeline_parallel import get_forward_backward_func

from learner.model import spec
from learner.model.head import Entropy, Wanted
from learner.model.packed import packed
from learner.model.policy import Model, Policy
from learner.ranks import context, device, parallel
from learner.training.batch import MicroBatch, Row, micro_batches
from learner.training.objective import Objective, Stats, gap_stats, token_stats


def gradients(
    policy: Policy,
    batch: Sequence[MicroBatch],
    objective: Objective,
    *,
    entropy: Entropy = "metric",
    broken: torch.Tensor | None = None,
) -> dict[str, float]:
    """Puts the batch's gradient into the policy's buffers; returns the stats over all ranks.

    batch: this data-parallel rank's micro-batches. entropy: how the objective uses entropies.
    broken: [rows of the whole batch] zeros, on this rank's device. Afterwards it is above 0, on
    every rank, for each row with a log-prob or a loss that is not finite.
    """
    policy.zero_grad()
    scale = len(batch) * parallel.data_size()

    def finish(
        part: MicroBatch, logp: torch.Tensor, entropies: torch.Tensor
    ) -> tuple[torch.Tensor, Stats]:
        token_loss, stats = objective(part, logp, entropies)
        weighed = token_loss * part.weight
        loss = weighed.sum()
        stats["loss"] = loss.detach().clone()
        if broken is not None:
            finite = logp.detach().isfinite() & weighed.detach().isfinite()
            broken.index_add_(0, part.row, (~finite).to(broken.dtype))
        # An empty micro-batch still has to reach every weight's gradient hook.
        return loss * scale if len(logp) else logp.sum() * 0.0, stats

    parts = _schedule(policy, batch, finish, entropy=entropy, forward_only=False)
    if broken is not None:
        parallel.reduce_over_all(broken, "max")
    return _collect(parts)


def own_micro_batches(rows: Sequence[Row], budget: int) -> list[MicroBatch]:
    """This rank's micro-batches of a batch whose rows all ranks have."""
    chunks = context.chunks(parallel.context_size())
    return micro_batches(
        rows,
        rank=parallel.data_rank(),
        ranks=parallel.data_size(),
        budget=budget,
        multiple=chunks * parallel.tensor_size(),
        each=chunks,
    )


def score(
    model: Model,
    rows: Sequence[Row],
    budget: int,
    field: Literal["old", "reference", "teacher"],
) -> tuple[list[Row], dict[str, float]]:
    """(rows with their log-probs under `model` in `field`, their stats).

    The stats are those of `token_stats` and `gap_stats`. Each data-parallel rank scores its share,
    and all ranks get all rows.
    """
    parts = own_micro_batches(rows, budget)

    def finish(
        part: MicroBatch, logp: torch.Tensor, entropy: torch.Tensor
    ) -> tuple[torch.Tensor, Any]:
        stats = {**token_stats(logp, entropy), **gap_stats(logp, part.behaviour, part.fresh)}
        return logp.new_zeros(()), (part.row, logp, stats)

    with torch.no_grad():
        done = _schedule(model, parts, finish, entropy="metric", forward_only=True)
    flat = torch.zeros(sum(row.count for row in rows), device=device.device())
    starts = np.concatenate([[0], np.cumsum([row.count for row in rows])])
    for row_of, logp, _stats in done:
        order = row_of.cpu().numpy()
        for index in np.unique(order):
            chosen = torch.from_numpy(np.flatnonzero(order == index)).to(logp.device)
            flat[starts[index] : starts[index + 1]] = logp[chosen]
    values = parallel.from_last_stage(parallel.reduce_over_data(flat, "sum").cpu()).numpy()
    scored = []
    for place, row in enumerate(rows):
        filled = np.zeros(len(row.tokens), dtype=np.float32)
        filled[row.target] = values[starts[place] : starts[place + 1]]
        given: dict[str, Any] = {field: filled}
        scored.append(replace(row, **given))
    return scored, _collect([stats for _, _, stats in done])


def _schedule(
    model: Model, batch: Sequence[MicroBatch], finish: Any, *, entropy: Entropy, forward_only: bool
) -> Any:
    where = device.device()

    def forward(parts: Iterator[MicroBatch], network: Any) -> tuple[torch.Tensor, Any]:
        part = next(parts)
        warm = bool((part.temperature != 1.0).any())  # still on the host: nothing waits
        own = device.moved(context.own_share(part.lengths, part.index), where)
        part = device.moved(part, where)
        if model.image_embedding is not None:
            model.image_embedding.shown = part.shown
        model.head.wanted = Wanted(
            index=own.index,
            targets=own.of_targets(part.targets),
            temperature=own.of_targets(part.temperature) if warm else None,
            entropy=entropy,
        )
        positions = own.of_row(part.positions)
        sequences = packed(
            part.lengths,
            positions,
            fused=spec.has_transformer_engine(),
            fused_rope=model.config.apply_rope_fusion,
        )
        scores = network(own.of_row(part.tokens), positions, None, packed_seq_params=sequences)
        return scores, partial(_loss, part, own)  # [1, n, 2], n this rank's targets

    def _loss(part: MicroBatch, own: context.Share, scores: torch.Tensor) -> Any:
        logp, entropies = own.whole(scores[0], len(part.targets)).unbind(-1)
        return finish(part, logp, entropies)

    return get_forward_backward_func()(
        forward_step_func=forward,
        data_iterator=iter(batch),
        model=[model.network],
        num_microbatches=len(batch),
        seq_length=max(part.tokens.shape[1] for part in batch),
        micro_batch_size=1,
        forward_only=forward_only,
    )


def _collect(parts: Sequence[Stats]) -> dict[str, float]:
    """Sums, and maxima of "max_*", over micro-batches and data-parallel ranks.

    They come from the last pipeline stage: the others have no stats.
    """
    out: dict[str, float] = {}
    names = sorted(parts[0]) if parts else []
    for op in ("sum", "max"):
        own = [name for name in names if name.startswith("max_") == (op == "max")]
        if not own:
            continue
        table = torch.stack([torch.stack([part[name].double() for name in own]) for part in parts])
        total = table.sum(0) if op == "sum" else table.amax(0)
        parallel.reduce_over_data(total, op)
        out.update(zip(own, total.tolist(), strict=True))
    return parallel.from_last_stage(out)
