"""Checks that a published folder is whole by its headers: configuration and safetensors.

A killed publisher or a power cut leaves files that are missing, short, or full of zeros. Samplers
would find that one after another, each at its own pause. The check reads only sizes and headers,
never weights: milliseconds for each folder, whatever the model's size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from engine.errors import EngineError
from engine.serving.publish.policy_shape import PolicyShape
from toolwright.model.model_folder import ModelFolderError
from toolwright.model.weights import read_tensors

CONFIG_BYTES = 16 << 20
INDEX_BYTES = 256 << 20


class BrokenFolder(EngineError):
    """Samplers cannot load the folder. The message names the file and its fault."""


def check_policy_folder(folder: Path) -> PolicyShape:
    """The content of configuration and headers. Raises BrokenFolder unless the folder has a
    configuration and whole safetensors files.

    Reads the disk; call it from a thread.
    """
    if not folder.is_dir():
        raise BrokenFolder(f"no folder {folder}")
    config = json_object(folder / "config.json", CONFIG_BYTES)
    shards = sorted(folder.glob("*.safetensors"))
    if not shards:
        raise BrokenFolder(f"{folder} has no *.safetensors weights")
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    try:
        for shard in shards:
            read = read_tensors(shard)
            tensors |= {name: (one.dtype, one.shape) for name, one in read.items()}
    except ModelFolderError as error:
        raise BrokenFolder(str(error)) from error
    index = folder / "model.safetensors.index.json"
    if index.exists():
        named = json_object(index, INDEX_BYTES).get("weight_map")
        missing = set(named.values() if isinstance(named, dict) else ()) - {p.name for p in shards}
        if missing:
            raise BrokenFolder(f"{index} names {sorted(map(str, missing))[0]}, which is not there")
    return PolicyShape(config=config, tensors=tensors)


def json_object(file: Path, limit: int) -> dict[str, Any]:
    """The object of a JSON file. Raises BrokenFolder for other content, or over `limit` bytes."""
    try:
        if file.stat().st_size > limit:
            raise BrokenFolder(f"{file} has more than {limit} bytes")
        found = orjson.loads(file.read_bytes())
    except OSError as error:
        raise BrokenFolder(f"{file} cannot be read ({error.strerror})") from error
    except orjson.JSONDecodeError as error:
        raise BrokenFolder(f"{file} is not JSON: the file is damaged") from error
    if not isinstance(found, dict):
        raise BrokenFolder(f"{file} holds no JSON object")
    return found
