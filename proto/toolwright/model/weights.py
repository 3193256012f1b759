"""Safetensors files of a policy folder: their headers, and whether they fit config.json.

Reads headers, and of a tied model also the two tensors that must be equal. No tensor library.
A header is bounded (`model_folder.read_header`), and tensors are compared in pieces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolwright.model.model_folder import ModelFolderError, read_header, read_json

EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"
"""Ends of the names of a policy's input and output embedding."""
_PIECE = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor of a file. start, end: its bytes, counted from the file's beginning."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def read_tensors(file: Path, *, whole: bool = True) -> dict[str, StoredTensor]:
    """A safetensors file's tensors by name, from its header.

    Header length (8 bytes, little-endian), JSON header, then exactly the tensors' bytes. whole:
    the file must have all of them. Raises ModelFolderError.
    """
    text, size = read_header(file)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFolderError(f"the header of {file} is not JSON: the file is damaged") from error
    length = len(text)
    found = _tensors(file, header, 8 + length)
    if not found:
        raise ModelFolderError(f"the header of {file} names no tensors: the file is damaged")
    end = max(tensor.end for tensor in found.values())
    if whole and end != size:
        raise ModelFolderError(
            f"{file} has {size - 8 - length} bytes of tensors, its header speaks of "
            f"{end - 8 - length}: it was not written to its end"
        )
    return found


def check_weights(folder: Path) -> None:
    """Raises ModelFolderError if embedding or head do not fit config.json.

    Their rows must be `vocab_size`. With `tie_word_embeddings` the embedding is the head: a head
    of other numbers in the files would be dropped by the learner and kept by others.
    """
    tensors: dict[str, StoredTensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= read_tensors(file, whole=False)
    config = read_json(folder / "config.json")
    rows = text_setting(config, "vocab_size")
    tied = text_setting(config, "tie_word_embeddings") is True
    for name, tensor in tensors.items():
        if not name.endswith((EMBEDDING, HEAD)) or name.startswith(("visual.", "model.visual.")):
            continue
        if isinstance(rows, int) and tensor.shape[:1] != (rows,):
            raise ModelFolderError(
                f"weights of {folder} do not fit its config.json: {name} has "
                f"{tensor.shape[0] if tensor.shape else 0} rows, vocab_size is {rows}: set "
                "vocab_size to the rows, or resize the model's embeddings"
            )
    embedding = next((one for one in tensors if one.endswith(EMBEDDING)), "")
    head = next((one for one in tensors if one.endswith(HEAD)), "")
    if tied and embedding and head and not _equal(tensors[embedding], tensors[head]):
        raise ModelFolderError(
            f"weights of {folder} do not fit its config.json: {head} differs from {embedding}, and "
            "tie_word_embeddings is true: set tie_word_embeddings = false in its config.json to "
            "keep the head, or remove the tensor to drop it"
        )


def _equal(one: StoredTensor, other: StoredTensor) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    left_bytes, right_bytes = one.end - one.start, other.end - other.start
    if left_bytes != right_bytes:
        return False
    try:
        with one.file.open("rb") as left, other.file.open("rb") as right:
            left.seek(one.start)
            right.seek(other.start)
            for at in range(0, left_bytes, _PIECE):
                size = min(_PIECE, left_bytes - at)
                if left.read(size) != right.read(size):
                    return False
    except OSError as error:
        raise ModelFolderError(f"{one.file} cannot be read ({error.strerror})") from error
    return True


def text_setting(config: Mapping[str, Any], key: str) -> Any:
    """A setting of the language model in config.json: at the top, or in `text_config`."""
    nested = config.get("text_config")
    found = config.get(key)
    return nested.get(key) if found is None and isinstance(nested, dict) else found


def _tensors(file: Path, header: Any, first_byte: int) -> dict[str, StoredTensor]:
    """Tensors by name; empty if the JSON is not a safetensors header."""
    found: dict[str, StoredTensor] = {}
    for name, tensor in header.items() if isinstance(header, dict) else ():
        if name == "__metadata__":
            continue
        match tensor:
            case {
                "dtype": str(dtype),
                "shape": [*shape],
                "data_offsets": [int(first), int(last)],
            } if 0 <= first <= last and all(isinstance(size, int) for size in shape):
                found[name] = StoredTensor(
                    file=file,
                    dtype=dtype,
                    shape=tuple(shape),
                    start=first_byte + first,
                    end=first_byte + last,
                )
            case _:
                return {}
    return found
