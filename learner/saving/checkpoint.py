"""Checkpoints: the whole state of training, written atomically.

A checkpoint is a folder `step-00000012-LINEAGE`: weights, optimizer and random state in Megatron's
distributed format (readable at another tensor-parallel size), `state.json` and `ledger.jsonl`. It
is written under another name, flushed to disk, renamed, and then named by the file `latest`. A
crash in between leaves the previous checkpoint in place.

`begin` copies the state to host memory; a thread writes the copy while training continues. Its
messages between ranks have a gloo group of their own, since training uses the others meanwhile.

The tensors are written by torch's own file writer in this process. Megatron's default forks
writers. That is slow for small models, since a helper interpreter starts, and a process with a gRPC
channel must not fork. For the same reason Megatron's own asynchronous save is not used.

Does not know what the numbers in `state` mean.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.dist_checkpointing.core import (
    CheckpointingConfig,
    CheckpointingException,
    save_config,
)
from megatron.core.dist_checkpointing.mapping import ShardedTensor
from megatron.core.dist_checkpointing.state_dict_utils import save_preprocess
from megatron.core.dist_checkpointing.strategies.torch import (
    MCoreSavePlanner,
    _replace_state_dict_keys_with_sharded_keys,
    mcore_to_pyt_state_dict,
)
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from learner import disk
from learner.errors import CheckpointError
from learner.intake.ledger import Ledger
from learner.model.policy import Policy
from learner.ranks import device, parallel
from learner.saving.folder_writer import FolderWriter
from learner.saving.safe_load import COMMON, read_sharded
from learner.saving.split_optimizer import is_split, restore_steps, split_state

LATEST = "latest"
WRITERS_WAIT = timedelta(hours=1)
"""Longest wait of a rank that has written its part for the slowest one."""
_METADATA = {"chained_optim_avoid_prefix": True}


class Checkpoints:
    """The checkpoints of one run, in one folder. At most one is in progress.

    A context manager; its exit waits for a checkpoint in progress.
    """

    def __init__(self, folder: Path, kept: int) -> None:
        self.folder = folder
        self._kept = kept
        self._writer = FolderWriter()
        self._copies = HostCopies()
        self._group: Any = None

    def __enter__(self) -> Checkpoints:
        self._join()
        return self

    def __exit__(self, *error: Any) -> None:
        self._writer.__exit__(*error)

    def sweep(self) -> None:
        """Removes unfinished files of a process that died. Rank 0 calls it first."""
        if self.folder.is_dir():
            for path in self.folder.glob(".step-*.unfinished"):
                shutil.rmtree(path)
            (self.folder / f".{LATEST}").unlink(missing_ok=True)

    def latest(self) -> Path | None:
        """The newest complete checkpoint; None in a fresh run. Raises CheckpointError."""
        pointer = self.folder / LATEST
        if not pointer.is_file():
            return None
        path = self.folder / pointer.read_text(encoding="utf-8").strip()
        if not (path / "state.json").is_file():
            raise CheckpointError(
                f"{pointer} names {path.name}, which is not there: restore it, or write another "
                "step-* folder's name into that file, or delete it to start afresh"
            )
        return path

    def save(
        self, policy: Policy, step: int, tag: str, state: Mapping[str, Any], ledger: Ledger
    ) -> Path:
        """Writes and names a checkpoint; all ranks call it. Returns its folder."""
        final = self.begin(policy, step, tag, state, ledger)
        self.settle()
        return final

    @property
    def written(self) -> bool:
        """Whether this rank has written a checkpoint that `settle` has not returned yet."""
        return self._writer.done

    def wait(self) -> None:
        """Waits on this rank for the checkpoint in progress. Raises CheckpointError."""
        self._writer.settle()

    def settle(self) -> None:
        """Waits for the checkpoint in progress; all ranks call it. Raises CheckpointError."""
        self.wait()
        parallel.barrier()

    def begin(
        self, policy: Policy, step: int, tag: str, state: Mapping[str, Any], ledger: Ledger
    ) -> Path:
        """Copies the state and begins to write it; all ranks call it. Returns its later folder.

        The weights may change afterwards. tag: part of the folder's name: the lineage, so that two
        lineages never share a folder. `settle` must have returned the checkpoint before.
        """
        final = self.folder / f"step-{step:08d}-{tag}"
        unfinished = self.folder / f".{final.name}.unfinished"
        if parallel.is_first():
            shutil.rmtree(unfinished, ignore_errors=True)
            (unfinished / "model").mkdir(parents=True)
            disk.write_flushed(unfinished / "state.json", json.dumps(dict(state), indent=1) + "\n")
            disk.write_flushed(unfinished / "ledger.jsonl", ledger.dump())
        parallel.barrier()
        with _refused(unfinished):
            copies = self._copied(
                {**_sharded(policy, loading=False), "rng": torch.get_rng_state()},
                unfinished / "model",
            )
        self._join()
        self._writer.begin(
            lambda: self._write(unfinished, copies), lambda: self._name(unfinished, final)
        )
        return final

    def _join(self) -> None:
        """Makes the writers' group, once; all ranks call it."""
        if self._group is None:
            self._group = dist.new_group(backend="gloo", timeout=WRITERS_WAIT)

    def _copied(self, state: dict[str, Any], folder: Path) -> Any:
        """What this rank has to write, copied, in torch's form. Rank 0 writes the rest at once.

        Does what Megatron's `save` of version 0.16 does; later versions write another format.
        """
        sharded, common = save_preprocess(state)
        if parallel.is_first():
            torch.save(common, folder / COMMON)
            save_config(CheckpointingConfig("torch_dist"), str(folder))
        renamed, _flat, _names = _replace_state_dict_keys_with_sharded_keys(
            sharded, keep_only_main_replica=True
        )
        parts = [
            part for found in renamed.values() for part in found if isinstance(part, ShardedTensor)
        ]
        named = {(part.key, part.global_offset): part.data for part in parts}
        for part, copy in zip(parts, self._copies(named), strict=True):
            part.data = copy
        return mcore_to_pyt_state_dict(renamed, False)

    def _write(self, unfinished: Path, copies: Any) -> None:
        """Returns on rank 0 when every rank has written its part."""
        with _refused(unfinished):
            save_sharded(
                copies,
                storage_writer=FileSystemWriter(
                    unfinished / "model", single_file_per_rank=True, sync_files=True, overwrite=True
                ),
                planner=MCoreSavePlanner(dedup_replicated_tensors=False, flatten_state_dict=False),
                process_group=self._group,
            )

    def _name(self, unfinished: Path, final: Path) -> None:
        """Makes the folder the newest checkpoint, on rank 0."""
        if not parallel.is_first():
            return
        with _refused(unfinished):
            disk.flush_tree(unfinished)
            shutil.rmtree(final, ignore_errors=True)
            disk.rename_flushed(unfinished, final)
            pointer = self.folder / f".{LATEST}"
            disk.write_flushed(pointer, final.name + "\n")
            disk.rename_flushed(pointer, self.folder / LATEST)
            self._delete_old(final)

    def load(self, policy: Policy, path: Path) -> None:
        """Weights, optimizer and random state into `policy`; all ranks call it.

        Raises CheckpointError for a model or optimizer of another shape, and for files that name
        anything that could run code (`safe_load`).
        """
        try:
            loaded = read_sharded(
                {**_sharded(policy, loading=True), "rng": torch.get_rng_state()}, path / "model"
            )
            with torch.no_grad():
                policy.bare.load_state_dict(loaded["model"], strict=policy.adapters is None)
                if is_split(policy.optimizer):
                    restore_steps(policy.optimizer, loaded["optimizer"])
                else:
                    policy.optimizer.load_state_dict(_whole(policy, loaded["optimizer"]))
                policy.apply_settings()
        except UnpicklingError as error:
            raise CheckpointError(
                f"checkpoint {path}: {error}: use a checkpoint that Toolwright wrote"
            ) from error
        except (
            KeyError,
            ValueError,
            RuntimeError,
            OSError,
            CheckpointException,
            CheckpointingException,
        ) as error:
            raise CheckpointError(
                f"{path} does not fit the recipe's model and optimizer ({_last_line(error)}): use "
                "the recipe that wrote it, or another run.folder"
            ) from error
        torch.set_rng_state(loaded["rng"])

    def resume(
        self, policy: Policy, expected: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Ledger] | None:
        """Loads the newest checkpoint. Returns (state, ledger); None in a fresh run.

        All ranks call it. expected: settings that the checkpoint must agree with. Raises
        CheckpointError if it does not fit them, or cannot be read.
        """
        if parallel.is_first():
            self.sweep()
        path = self.latest()
        if path is None:
            return None
        state, ledger = read_state(path)
        check_fits(state, expected, path)
        self.load(policy, path)
        return state, ledger

    def _delete_old(self, newest: Path) -> None:
        others = (p for p in self.folder.glob("step-*") if p.is_dir() and p != newest)
        # By age: an abandoned lineage may have reached higher steps.
        old = disk.oldest_first(newest, others)
        for path in old[: max(0, len(old) - self._kept + 1)]:
            shutil.rmtree(path)


def read_state(path: Path) -> tuple[dict[str, Any], Ledger]:
    """(state, ledger) of a checkpoint. Raises CheckpointError if they cannot be read."""
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        ledger = Ledger.parse((path / "ledger.jsonl").read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error}") from error
    return state, ledger


def check_fits(state: Mapping[str, Any], expected: Mapping[str, Any], path: Path) -> None:
    """Raises CheckpointError with the first value of `expected` that the checkpoint differs in."""
    for name, value in expected.items():
        if state.get(name) != value:
            raise CheckpointError(
                f"checkpoint {path} was written with {name} = {state.get(name)}, the recipe now "
                f"says {value}: undo the change, or choose another run.folder"
            )


def _sharded(policy: Policy, *, loading: bool) -> dict[str, Any]:
    policy.gather()
    model = policy.bare.sharded_state_dict()
    if policy.adapters is not None:  # the policy's folder has the frozen weights
        model = {name: value for name, value in model.items() if name.startswith("adapters.")}
    if is_split(policy.optimizer):
        masters = policy.bridge.dtype is torch.bfloat16
        return {"model": model, "optimizer": split_state(policy.optimizer, model, masters=masters)}
    optimizer = policy.optimizer.sharded_state_dict(model, is_loading=loading, metadata=_METADATA)
    return {"model": model, "optimizer": optimizer}


def _whole(policy: Policy, state: dict[Any, Any]) -> dict[Any, Any]:
    """Restores what a checkpoint may lack: the step count of a fresh Adam, which Megatron omits
    because it is 0, and values of the groups, which a split optimizer does not write."""
    parts = policy.optimizer.chained_optimizers
    wraps = [state] if len(parts) == 1 else [state[place] for place in range(len(parts))]
    for own_part, wrapped in zip(parts, wraps, strict=True):
        part = wrapped.get("optimizer", wrapped)  # bfloat16 has float32 masters beside it
        groups = own_part.optimizer.state_dict()["param_groups"]
        part["param_groups"] = [
            {**own, **read} for own, read in zip(groups, part["param_groups"], strict=True)
        ]
        moments = [own for own in part["state"].values() if isinstance(own, dict)]
        if any("exp_avg" in own for own in moments):
            part["state"].setdefault("common_step", torch.tensor(0.0))
    return state


class HostCopies:
    """Copies of tensors in host memory. With CUDA it is pinned, and used again for each checkpoint:
    pinning takes longer than the copy."""

    def __init__(self) -> None:
        self._pinned: dict[tuple[Any, ...], torch.Tensor] = {}

    def __call__(self, tensors: Mapping[tuple[Any, ...], torch.Tensor]) -> list[torch.Tensor]:
        """The copies, in order. Keys: one for each tensor, the same for the next checkpoint."""
        if not device.has_cuda():
            return [tensor.detach().clone() for tensor in tensors.values()]
        copies = []
        for name, tensor in tensors.items():
            kept = self._pinned.get(name)
            if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
                kept = torch.empty_like(tensor, device="cpu", pin_memory=True)
                self._pinned[name] = kept
            copies.append(kept.copy_(tensor.detach(), non_blocking=True))
        torch.cuda.current_stream().synchronize()
        return copies


@contextmanager
def _refused(unfinished: Path) -> Iterator[None]:
    """Raises CheckpointError in place of an error of the disk or of torch's writers."""
    try:
        yield
    except (OSError, CheckpointException) as error:
        causes = _causes(error)
        full = any(isinstance(one, OSError) and one.errno in _FULL for one in causes)
        fix = "make room on the disk. " if full else ""
        raise CheckpointError(
            f"cannot write {unfinished} ({_last_line(causes[0])}): {fix}The previous checkpoint is "
            "complete"
        ) from error


_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a disk without room."""


def _causes(error: OSError | CheckpointException) -> list[BaseException]:
    """The errors of the ranks that failed, or the error itself."""
    if isinstance(error, CheckpointException):
        found = [cause for cause, _trace in error.failures.values()]
        return found or [error]
    return [error]


def _last_line(error: BaseException) -> str:
    """The error's type and the last line of its message: torch includes a remote traceback."""
    lines = str(error).strip().splitlines()
    return ": ".join((type(error).__name__, *lines[-1:]))
