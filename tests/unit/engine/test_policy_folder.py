"""A folder that a power cut or a killed publisher left is refused before a sampler hears of it."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.serving.publish.policy_folder import BrokenFolder, check_policy_folder
from tests.support.weights import safetensors, write_weights


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_weights(tmp_path / "a-1")


def headed(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def index_of(folder: Path, shard: str) -> None:
    text = json.dumps({"weight_map": {"w": shard}})
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def test_a_whole_folder_is_taken(folder: Path) -> None:
    check_policy_folder(folder)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    (folder / "model-00002-of-00002.safetensors").write_bytes(safetensors({"a": 8, "b": 0}))
    index_of(folder, "model-00001-of-00002.safetensors")
    check_policy_folder(folder)


def cut(size: int) -> Callable[[Path], object]:
    """The weights up to `size` bytes, counted from the end if it is negative."""

    def spoil(folder: Path) -> None:
        file = folder / "model.safetensors"
        os.truncate(file, size if size >= 0 else file.stat().st_size + size)

    return spoil


def weights(data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "model.safetensors").write_bytes(data)


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty file": (cut(0), "no safetensors header"),
    "cut header": (cut(30), "no safetensors header"),
    "cut tensors": (cut(-3), "13 bytes of tensors, its header speaks of 16"),
    "zeros": (weights(bytes(200)), "no safetensors header"),
    "zeros in the header": (weights(headed(bytes(90), bytes(16))), "is not JSON"),
    "length beyond all files": (weights(struct.pack("<Q", 2**63) + b"{}"), "no safetensors header"),
    "a list": (weights(headed(b"[]")), "no tensors"),
    "offsets of text": (weights(headed(b'{"w": {"data_offsets": ["0", 4]}}')), "no tensors"),
    "offsets backwards": (weights(headed(b'{"w": {"data_offsets": [4, 0]}}')), "no tensors"),
    "weights gone": (lambda f: (f / "model.safetensors").unlink(), r"no \*.safetensors weights"),
    "config gone": (lambda f: (f / "config.json").unlink(), "No such file"),
    "config empty": (lambda f: (f / "config.json").write_bytes(b""), "is not JSON"),
    "config a list": (lambda f: (f / "config.json").write_bytes(b"[1]"), "no JSON object"),
    "a shard gone": (lambda f: index_of(f, "model-7.safetensors"), "names model-7.safetensors"),
    "a folder of weights": (lambda f: (f / "more.safetensors").mkdir(), "more.safetensors"),
}


@pytest.mark.parametrize(("spoil", "sentence"), SPOILED.values(), ids=SPOILED)
def test_a_broken_folder_is_named_with_its_file(
    folder: Path, spoil: Callable[[Path], object], sentence: str
) -> None:
    spoil(folder)
    with pytest.raises(BrokenFolder, match=sentence) as caught:
        check_policy_folder(folder)
    assert str(folder) in str(caught.value)


def test_a_file_or_nothing_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for path in (tmp_path / "file", tmp_path / "nothing"):
        with pytest.raises(BrokenFolder, match=f"no folder {path}"):
            check_policy_folder(path)
