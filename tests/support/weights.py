"""A folder that samplers can load: a configuration and one tensor."""

from __future__ import annotations

import json
import struct
from pathlib import Path


def write_weights(folder: Path, sizes: dict[str, int] | None = None) -> Path:
    """The smallest whole policy folder that a publish is taken from.

    sizes: bytes of each tensor.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"}), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(safetensors(sizes or {"w": 16}))
    return folder


def safetensors(sizes: dict[str, int]) -> bytes:
    """A file of zeros; `sizes`: bytes of each tensor, 4 a number."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, size in sizes.items():
        header[name] = {"dtype": "F32", "shape": [size // 4], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)
