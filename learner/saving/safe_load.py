"""Reads Megatron's distributed checkpoint format without running code from it.

The format holds three kinds of pickles. torch's own reader runs two of them as they are: the file
`.metadata`, and objects between the tensors. A checkpoint may come from a stranger. So an unpickler
with a list of allowed names reads each kind here.

Invariants
- `.metadata` may name torch's metadata classes, `torch.Size`, paths and dtypes; nothing else.
- Python 3.11 before 3.11.4 writes an enum's member with `getattr`. `getattr` may return only
  members of the listed enums.
- It may name files of its own folder only.
- `common.pt`, tensors and objects are read by torch's `weights_only` unpickler.
"""

from __future__ import annotations

import io
import pickle
from enum import EnumMeta
from pathlib import Path, PosixPath
from typing import Any

import torch
from megatron.core.dist_checkpointing.dict_utils import merge, nested_values
from megatron.core.dist_checkpointing.mapping import ShardedTensor, apply_factory_merges
from megatron.core.dist_checkpointing.state_dict_utils import load_preprocess
from megatron.core.dist_checkpointing.strategies.torch import (
    MCoreLoadPlanner,
    _replace_sharded_keys_with_state_dict_keys,
    _replace_state_dict_keys_with_sharded_keys,
    _restore_dict_types,
    _unwrap_pyt_sharded_tensor,
    mcore_to_pyt_state_dict,
)
from megatron.core.dist_checkpointing.utils import extract_sharded_base
from megatron.core.dist_checkpointing.validation import (
    determine_global_metadata,
    validate_sharding_integrity,
)
from torch.distributed.checkpoint import filesystem, metadata
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded

from learner.errors import CheckpointError

METADATA = ".metadata"
COMMON = "common.pt"
LARGEST_METADATA = 1 << 30
"""Largest size of the file, in bytes. An entry takes about 500: two million pieces of tensors."""

_CLASSES = (
    metadata.BytesStorageMetadata,
    metadata.ChunkStorageMetadata,
    metadata.Metadata,
    metadata.MetadataIndex,
    metadata.StorageMeta,
    metadata.TensorProperties,
    metadata.TensorStorageMetadata,
    metadata._MEM_FORMAT_ENCODING,
    filesystem._StorageInfo,
    torch.Size,
    torch.serialization._get_layout,
    PosixPath,
)
_DTYPES = {repr(one).removeprefix("torch."): one for one in vars(torch).values()
           if isinstance(one, torch.dtype)}  # fmt: skip
_ALLOWED = {
    **{(one.__module__, one.__qualname__): one for one in _CLASSES},
    **{("torch", name): one for name, one in _DTYPES.items()},
}
_BROKEN = (
    pickle.UnpicklingError, EOFError, AttributeError, ImportError, LookupError, ValueError,
    TypeError, RuntimeError, ArithmeticError, MemoryError,
)  # fmt: skip
"""Errors of an unpickler for damaged bytes."""


def read_metadata(folder: Path) -> metadata.Metadata:
    """What `folder`/.metadata says of the checkpoint's tensors. Raises CheckpointError if it names
    anything but torch's metadata, or a file outside of `folder`; OSError if it cannot be read."""
    path = folder / METADATA
    with path.open("rb") as file:
        data = file.read(LARGEST_METADATA + 1)
    if len(data) > LARGEST_METADATA:
        raise CheckpointError(f"{path} has more than {LARGEST_METADATA >> 30} GiB: use another one")
    try:
        found = _MetadataUnpickler(io.BytesIO(data)).load()
    except _Forbidden as error:
        raise CheckpointError(
            f"{path} names {error}, which no checkpoint needs and which could run code: use a "
            "checkpoint that Toolwright wrote"
        ) from error
    except _BROKEN as error:
        raise CheckpointError(f"{path} is not torch's metadata ({error}): restore it") from error
    storage = getattr(found, "storage_data", None)
    if not isinstance(found, metadata.Metadata) or not isinstance(storage, dict):
        raise CheckpointError(f"{path} is not torch's metadata: restore it")
    for info in storage.values():
        name = getattr(info, "relative_path", None)
        if not isinstance(name, str) or name != Path(name).name:
            raise CheckpointError(
                f"{path} names the file {str(name)[:200]!r}, which is not one of its folder: use a "
                "checkpoint that Toolwright wrote"
            )
    return found


def read_sharded(wanted: Any, folder: Path) -> Any:
    """The checkpoint's values in the form of `wanted`, a state of Megatron's sharded tensors.

    All ranks call it. Does what Megatron's `load` does: versions of Megatron read differently.
    Raises CheckpointError, OSError, CheckpointException for other shapes or keys, and
    UnpicklingError for objects that could run code.
    """
    known = read_metadata(folder)
    common = _load(folder / COMMON, str(folder / COMMON))
    state, kept, factories = load_preprocess(wanted)
    merge(common, kept)
    sharded, _ = extract_sharded_base(state)
    _, everywhere = determine_global_metadata(sharded)
    validate_sharding_integrity(everywhere)
    merge(common, _sharded_values(sharded, folder, known))
    return apply_factory_merges(common, factories)


def _sharded_values(sharded: Any, folder: Path, known: metadata.Metadata) -> Any:
    tensors = [one for one in nested_values(sharded) if isinstance(one, ShardedTensor)]
    renamed, flat, names = _replace_state_dict_keys_with_sharded_keys(sharded)
    state = mcore_to_pyt_state_dict(renamed, True)
    load_sharded(
        state,
        storage_reader=_Reader(folder, known),
        planner=_Planner(
            shapes_validation_sharded_tensors=[
                one for one in tensors if not one.allow_shape_mismatch
            ],
            allow_shape_mismatch_sharded_tensors={
                one.key: one for one in tensors if one.allow_shape_mismatch
            },
        ),
    )
    plain = {key: _unwrap_pyt_sharded_tensor(value) for key, value in state.items()}
    loaded = _replace_sharded_keys_with_state_dict_keys(plain, flat, names)
    _restore_dict_types(loaded, sharded)
    return loaded


class _Reader(filesystem.FileSystemReader):
    def __init__(self, folder: str | Path, known: metadata.Metadata) -> None:
        super().__init__(folder)
        self._known = known

    def read_metadata(self, *args: Any, **kwargs: Any) -> metadata.Metadata:
        if self._known.storage_meta is None:
            self._known.storage_meta = metadata.StorageMeta()
        self._known.storage_meta.load_id = self.load_id
        return self._known


class _Planner(MCoreLoadPlanner):  # type: ignore[misc]
    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
        name = read_item.dest_index.fqn
        found = _load(value, name)
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[name], found)
        else:
            self.state_dict[name] = found


def _load(source: Path | io.BytesIO, name: str) -> Any:
    """Tensors and plain values. Raises UnpicklingError, in one line, for anything else."""
    try:
        with torch.serialization.safe_globals([io.BytesIO]):
            # Explicit: an environment variable of torch changes the default.
            return torch.load(source, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise pickle.UnpicklingError(
            f"{name} holds more than tensors and plain values, which could run code"
        ) from error


class _Forbidden(Exception):
    """A name that is not on the list."""


def _member(kind: object, name: object) -> Any:
    """A member of an enum on the list. Raises _Forbidden for any other attribute."""
    if not (isinstance(kind, EnumMeta) and isinstance(name, str) and name in kind.__members__):
        raise _Forbidden("builtins.getattr")
    return kind[name]


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _member
        found = _ALLOWED.get((module, name))
        if found is None:
            raise _Forbidden(f"{module}.{name}"[:200])
        return found

    def persistent_load(self, pid: Any) -> Any:
        raise _Forbidden("a persistent id")
