"""The state of a distributed optimizer in a checkpoint: each rank writes and reads its own part.

Each data-parallel rank holds a range of every weight, flattened. In a checkpoint the range is up to
2n - 1 boxes of the weight's n-dimensional tensor, under the names that a whole optimizer uses. So a
checkpoint can be read with any number of ranks, split or not, and nothing is gathered.

Megatron's own form gathers 12 bytes a parameter on one rank, and cannot load torch's Adam.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

NAMES = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
MASTER = {"param": "fp32_param"}
"""Float32 masters, which only a bfloat16 policy has."""

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""(offset, size) in each dimension."""


def boxes(shape: Sequence[int], start: int, end: int) -> Iterator[Box]:
    """The boxes of elements start to end - 1 of a tensor in row-major order, in that order."""
    if end <= start:
        return
    if len(shape) < 2:
        yield (start,), (end - start,)
        return
    row = math.prod(shape[1:])
    first, last = -(-start // row), end // row
    if first > last:  # inside one row
        yield from _in_row(shape, last, start - last * row, end - last * row)
        return
    yield from _in_row(shape, first - 1, start - (first - 1) * row, row)
    if first < last:
        yield (first, *[0] * (len(shape) - 1)), (last - first, *shape[1:])
    yield from _in_row(shape, last, 0, end - last * row)


def _in_row(shape: Sequence[int], row: int, start: int, end: int) -> Iterator[Box]:
    """Like `boxes`, with start and end counted from a row's first element."""
    if start == math.prod(shape[1:]):
        return
    for offset, size in boxes(shape[1:], start, end):
        yield (row, *offset), (1, *size)


def is_split(optimizer: Any) -> bool:
    """Whether the data-parallel ranks share the optimizer's state."""
    return any(isinstance(part, DistributedOptimizer) for part in optimizer.chained_optimizers)


def split_state(optimizer: Any, model: dict[str, Any], *, masters: bool) -> dict[Any, Any]:
    """The state for `dist_checkpointing`, which reads into its tensors in place.

    model: the sharded state of the weights. masters: whether there are float32 masters.
    """
    parts = optimizer.chained_optimizers
    pieces = _pieces(model)
    states = [_part_state(part, pieces, masters=masters) for part in parts]
    return states[0] if len(states) == 1 else dict(enumerate(states))


def restore_steps(optimizer: Any, loaded: dict[Any, Any]) -> None:
    """Sets the number of updates. loaded: what the checkpoint has in place of `split_state`."""
    parts = optimizer.chained_optimizers
    states = [loaded] if len(parts) == 1 else [loaded[place] for place in range(len(parts))]
    for part, state in zip(parts, states, strict=True):
        # A checkpoint before the first update has no count.
        step = float(state.get("optimizer", state).get("state", {}).get("common_step", 0))
        for own in part.optimizer.state.values():
            if "step" in own:
                own["step"] = torch.tensor(step)  # one each: Adam counts in place
        for group in part.optimizer.param_groups:
            if "step" in group:  # TransformerEngine's Adam
                group["step"] = int(step)


def _part_state(
    part: DistributedOptimizer, pieces: dict[int, list[tuple[int, ShardedTensor]]], *, masters: bool
) -> dict[str, Any]:
    names = {**NAMES, **(MASTER if masters else {})}
    tensors: list[ShardedTensor] = []
    for param, start, end in own_ranges(part):
        own = part._get_main_param_and_optimizer_states(param)
        for name, stored in names.items():
            tensors += _tensors(
                pieces[id(param)], f"optimizer.state.{stored}", own[name], start, end
            )
    counted: dict[str, Any] = {"state": {"common_step": torch.tensor(_step(part.optimizer))}}
    return {"split": tensors, **({"optimizer": counted} if masters else counted)}


def own_ranges(part: DistributedOptimizer) -> Iterator[tuple[Any, int, int]]:
    """(weight, start, end) of the elements that this rank updates."""
    for buffer in part.gbuf_ranges:
        for buckets in buffer.values():
            for bucket in buckets:
                for param, found in bucket["param_map"].items():
                    yield param, found["param"].start, found["param"].end


def _pieces(model: dict[str, Any]) -> dict[int, list[tuple[int, ShardedTensor]]]:
    """By id of a weight: its pieces, each with the place of its first element in the weight. Most
    have one; two matrices that are one weight are two pieces."""
    found = {}
    for value in nested_values(model):
        whole = value.data
        if not isinstance(whole, torch.Tensor):
            continue
        built = nested_values(value.build()) if isinstance(value, ShardedTensorFactory) else [value]
        found[id(whole)] = [
            (piece.data.storage_offset() - whole.storage_offset(), piece) for piece in built
        ]
    return found


def _tensors(
    pieces: list[tuple[int, ShardedTensor]], prefix: str, flat: torch.Tensor, start: int, end: int
) -> Iterator[ShardedTensor]:
    """The boxes of `flat`, which holds elements start to end - 1 of a weight."""
    for first, piece in pieces:
        size = math.prod(piece.local_shape)
        begin, stop = max(start - first, 0), min(end - first, size)
        done = first + begin - start
        ahead = (1,) * piece.prepend_axis_num
        for offset, extent in boxes(piece.local_shape, begin, stop):
            count = math.prod(extent)
            where = (*[0] * len(ahead), *offset)
            yield ShardedTensor(
                key=f"{prefix}.{piece.key}",
                data=flat[done : done + count].view(*ahead, *extent),
                dtype=flat.dtype,
                local_shape=(*ahead, *extent),
                global_shape=piece.global_shape,
                global_offset=tuple(map(sum, zip(piece.global_offset, where, strict=True))),
                axis_fragmentations=None,
                replica_id=(*piece.replica_id[:2], 0),
            )
            done += count


def _step(adam: Any) -> float:
    """Number of updates so far."""
    counts = [own["step"] for own in adam.state.values() if "step" in own]
    counts += [group["step"] for group in adam.param_groups if "step" in group]
    return float(counts[0]) if counts else 0.0
