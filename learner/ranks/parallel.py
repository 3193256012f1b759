"""The ranks: process group, Megatron's model-parallel groups, seeds.

NCCL with CUDA, gloo without. Works under torchrun (RANK, WORLD_SIZE, LOCAL_RANK) and alone.
Rank 0 is the only one that talks to the engine and writes files that are not sharded.
"""

from __future__ import annotations

import gc
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel

from learner.errors import LearnerError
from learner.ranks import device
from learner.ranks.lost import lost

Value = TypeVar("Value")

RANKS_WAIT = timedelta(minutes=10)
"""Timeout of a rank's wait for the others. If rank 0 works alone for longer, it sends heartbeats:
see `still_waiting`."""

_STILL_WAITING = "rank 0 still waits"


@contextmanager
def ranks(
    *,
    tensor: int = 1,
    pipeline: int = 1,
    context: int = 1,
    expert: int = 1,
    seed: int = 0,
    wait: timedelta = RANKS_WAIT,
) -> Iterator[None]:
    """The process group inside of the block.

    tensor, pipeline, context: a model copy has as many ranks as their product; the world size
    divided by it is the data-parallel size. expert: number of ranks of a pipeline stage that share
    the experts. wait: timeout of a rank's wait for the others.

    Raises LearnerError if the sizes do not divide the world size, and RanksError if another rank
    does not answer within `wait`.
    """
    device.install()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    copy = tensor * pipeline * context
    if world % copy:
        raise LearnerError(
            f"parallel.tensor = {tensor} times parallel.pipeline = {pipeline} times "
            f"parallel.context = {context} does not divide the world size {world}: start torchrun "
            f"with --nproc-per-node {copy} or a multiple"
        )
    if world // pipeline % expert:
        raise LearnerError(
            f"parallel.expert = {expert} times parallel.pipeline = {pipeline} does not divide the "
            f"world size {world}: ranks of one stage share the experts. Start torchrun "
            f"with --nproc-per-node {math.lcm(tensor * context, expert) * pipeline} or a multiple"
        )
    with tempfile.TemporaryDirectory(prefix="learner-ranks-") as folder:
        try:
            _join(Path(folder), wait)
            parallel_state.initialize_model_parallel(
                tensor_model_parallel_size=tensor,
                pipeline_model_parallel_size=pipeline,
                context_parallel_size=context,
                expert_model_parallel_size=expert,
                expert_tensor_parallel_size=1,
                create_gloo_process_groups=False,  # beside those of the backend
                distributed_timeout_minutes=max(1, math.ceil(wait.total_seconds() / 60)),
            )
            torch.manual_seed(seed)
            tensor_parallel.model_parallel_cuda_manual_seed(seed)
            yield
        except RuntimeError as error:
            if (sentence := lost(error, wait)) is not None:
                raise sentence from error
            raise
        finally:
            if dist.is_initialized():
                parallel_state.destroy_model_parallel()
                dist.destroy_process_group()
            # Megatron's objects refer to their groups in cycles. Each of fifteen groups holds four
            # open files until it is collected.
            gc.collect()


def _join(folder: Path, wait: timedelta) -> None:
    """Begins the process group. folder: empty, for a rank that is alone."""
    options: dict[str, Any] = {"backend": "gloo", "timeout": wait}
    if device.has_cuda():
        own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(own)
        # With its device NCCL connects now, and barriers need not guess the device.
        options |= {"backend": "nccl", "device_id": own}
    if "RANK" not in os.environ:
        # A file instead of a port: two learners on one machine cannot collide.
        options |= {"init_method": f"file://{folder}/rendezvous", "rank": 0, "world_size": 1}
    dist.init_process_group(**options)


def is_first() -> bool:
    """Whether this is rank 0, which talks to the engine and writes files."""
    return bool(dist.get_rank() == 0)


def data_rank() -> int:
    return int(parallel_state.get_data_parallel_rank())


def data_size() -> int:
    return int(parallel_state.get_data_parallel_world_size())


def tensor_size() -> int:
    return int(parallel_state.get_tensor_model_parallel_world_size())


def context_size() -> int:
    """Number of ranks that share every sequence."""
    return int(parallel_state.get_context_parallel_world_size())


def context_rank() -> int:
    return int(parallel_state.get_context_parallel_rank())


def context_group() -> Any:
    return parallel_state.get_context_parallel_group()


def expert_size() -> int:
    """Number of ranks that share the experts."""
    return int(parallel_state.get_expert_model_parallel_world_size())


def stages() -> int:
    """Number of pipeline stages of one model copy."""
    return int(parallel_state.get_pipeline_model_parallel_world_size())


def is_first_stage() -> bool:
    """Whether this rank holds the embedding."""
    return bool(parallel_state.is_pipeline_first_stage())


def is_last_stage() -> bool:
    """Whether this rank holds the output layer."""
    return bool(parallel_state.is_pipeline_last_stage())


def from_last_stage(value: Value) -> Value:
    """The last stage's value on every stage. Only the last stage has log-probs and losses."""
    if stages() == 1:
        return value
    box: list[Any] = [value]
    dist.broadcast_object_list(
        box,
        src=parallel_state.get_pipeline_model_parallel_last_rank(),
        group=parallel_state.get_pipeline_model_parallel_group(),
    )
    return box[0]  # type: ignore[no-any-return]


def from_first(value: Value | None) -> Value:
    """Rank 0's value on every rank; the others pass None."""
    if dist.get_world_size() == 1:
        return value  # type: ignore[return-value]
    while True:
        box: list[Any] = [value]
        dist.broadcast_object_list(box, src=0)
        if is_first() or box[0] != _STILL_WAITING:
            return box[0]  # type: ignore[no-any-return]


def still_waiting() -> None:
    """Heartbeat of rank 0 to the ranks that wait in `from_first`."""
    if dist.get_world_size() > 1:
        dist.broadcast_object_list([_STILL_WAITING], src=0)


def barrier() -> None:
    if dist.get_world_size() > 1:
        dist.barrier()


def on_any(fact: bool) -> bool:
    """Whether it is true on at least one rank. All ranks call it."""
    if dist.get_world_size() == 1:
        return fact
    found = torch.tensor([float(fact)], device=device.device())
    return bool(reduce_over_all(found, "max").item())


def reduce_over_all(tensor: torch.Tensor, op: str, group: Any = None) -> torch.Tensor:
    """The tensor summed ("sum") or maximised ("max") over every rank of the group, in place."""
    if dist.get_world_size(group) > 1:
        how = dist.ReduceOp.SUM if op == "sum" else dist.ReduceOp.MAX
        dist.all_reduce(tensor, op=how, group=group)
    return tensor


def reduce_over_data(tensor: torch.Tensor, op: str) -> torch.Tensor:
    """Like `reduce_over_all`, over the data-parallel ranks."""
    return reduce_over_all(tensor, op, parallel_state.get_data_parallel_group())
