"""Whether a published folder is whole, as far as its headers tell: configuration and safetensors.

A publisher that is killed, or a power cut, leaves files that are missing, short, or full of zeros.
Samplers would find out one after the other, each at its own pause. This looks at sizes and headers
alone, never at weights: milliseconds a folder, whatever the model's size.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import orjson

from engine.edge.policy_shape import PolicyShape
from engine.errors import EngineError

CONFIG_BYTES = 16 << 20
INDEX_BYTES = 256 << 20
HEADER_BYTES = 100_000_000
"""Longest header of a safetensors file; the format's own limit."""


class BrokenFolder(EngineError):
    """Samplers cannot load the folder; the message names the file and what is wrong with it."""


def check_policy_folder(folder: Path) -> PolicyShape:
    """What configuration and headers say; BrokenFolder unless there is a configuration and the
    safetensors files are whole.

    Reads the disk; call it from a thread.
    """
    if not folder.is_dir():
        raise BrokenFolder(f"no folder {folder}")
    config = _json_object(folder / "config.json", CONFIG_BYTES)
    shards = sorted(folder.glob("*.safetensors"))
    if not shards:
        raise BrokenFolder(f"{folder} has no *.safetensors weights")
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    for shard in shards:
        tensors |= _read_safetensors(shard)
    index = folder / "model.safetensors.index.json"
    if index.exists():
        named = _json_object(index, INDEX_BYTES).get("weight_map")
        missing = set(named.values() if isinstance(named, dict) else ()) - {p.name for p in shards}
        if missing:
            raise BrokenFolder(f"{index} names {sorted(map(str, missing))[0]}, which is not there")
    return PolicyShape(config=config, tensors=tensors)


def _read_safetensors(file: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Types and shapes by name, of a whole file.

    Header length (8 bytes, little-endian), JSON header, then exactly the tensors' bytes.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= min(HEADER_BYTES, size - 8):
                raise BrokenFolder(f"{file} has {size} bytes and no safetensors header")
            header = orjson.loads(stream.read(length))
    except OSError as error:
        raise BrokenFolder(f"{file} cannot be read ({error.strerror})") from error
    except orjson.JSONDecodeError as error:
        raise BrokenFolder(f"the header of {file} is no JSON: the file is damaged") from error
    tensors, end = _tensors(header)
    if not tensors:
        raise BrokenFolder(f"the header of {file} names no tensors: the file is damaged")
    if end != size - 8 - length:
        raise BrokenFolder(
            f"{file} has {size - 8 - length} bytes of tensors, its header speaks of {end}: it was "
            "not written to its end"
        )
    return tensors


def _tensors(header: Any) -> tuple[dict[str, tuple[str, tuple[int, ...]]], int]:
    """Types and shapes by name, and the bytes of all tensors together; nothing for what is no
    safetensors header."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    end = 0
    for name, tensor in header.items() if isinstance(header, dict) else ():
        if name == "__metadata__":
            continue
        match tensor:
            case {
                "dtype": str(dtype),
                "shape": [*shape],
                "data_offsets": [int(first), int(last)],
            } if 0 <= first <= last and all(isinstance(size, int) for size in shape):
                end = max(end, last)
                found[name] = dtype, tuple(shape)
            case _:
                return {}, 0
    return found, end


def _json_object(file: Path, limit: int) -> dict[str, Any]:
    try:
        if file.stat().st_size > limit:
            raise BrokenFolder(f"{file} has more than {limit} bytes")
        found = orjson.loads(file.read_bytes())
    except OSError as error:
        raise BrokenFolder(f"{file} cannot be read ({error.strerror})") from error
    except orjson.JSONDecodeError as error:
        raise BrokenFolder(f"{file} is no JSON: the file is damaged") from error
    if not isinstance(found, dict):
        raise BrokenFolder(f"{file} holds no JSON object")
    return found
