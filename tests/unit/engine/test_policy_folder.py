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


def test_a_whole_folder_is_taken(folder: Path) -> None:
    check_policy_folder(folder)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    (folder / "model-00002-of-00002.safetensors").write_bytes(safetensors({"a": 8, "b": 0}))
    index = {"weight_map": {"w": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    check_policy_folder(folder)


Spoil = Callable[[Path], object]
SPOILED: dict[str, tuple[Spoil, str]] = {
    "empty file": (lambda f: os.truncate(f / "model.safetensors", 0), "no safetensors header"),
    "cut header": (lambda f: os.truncate(f / "model.safetensors", 30), "no safetensors header"),
    "cut tensors": (
        lambda f: os.truncate(
            f / "model.safetensors", (f / "model.safetensors").stat().st_size - 3
        ),
        "13 bytes of tensors, its header speaks of 16",
    ),
    "zeros of the right size": (
        lambda f: (f / "model.safetensors").write_bytes(
            bytes((f / "model.safetensors").stat().st_size)
        ),
        "no safetensors header",
    ),
    "zeros in the header": (
        lambda f: (f / "model.safetensors").write_bytes(headed(bytes(90), bytes(16))),
        "is not JSON",
    ),
    "length beyond all files": (
        lambda f: (f / "model.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"{}"),
        "no safetensors header",
    ),
    "a list": (lambda f: (f / "model.safetensors").write_bytes(headed(b"[]")), "no tensors"),
    "no tensor": (lambda f: (f / "model.safetensors").write_bytes(headed(b"{}")), "no tensors"),
    "offsets that are none": (
        lambda f: (f / "model.safetensors").write_bytes(
            headed(b'{"w": {"data_offsets": ["0", 4]}}', bytes(4))
        ),
        "no tensors",
    ),
    "offsets backwards": (
        lambda f: (f / "model.safetensors").write_bytes(
            headed(b'{"w": {"data_offsets": [4, 0]}}', bytes(4))
        ),
        "no tensors",
    ),
    "weights gone": (lambda f: (f / "model.safetensors").unlink(), r"no \*.safetensors weights"),
    "config gone": (lambda f: (f / "config.json").unlink(), "No such file"),
    "config empty": (lambda f: (f / "config.json").write_bytes(b""), "is not JSON"),
    "config a list": (
        lambda f: (f / "config.json").write_text("[1]", encoding="utf-8"),
        "no JSON object",
    ),
    "a shard of the index gone": (
        lambda f: (f / "model.safetensors.index.json").write_text(
            '{"weight_map": {"w": "model-00007-of-00007.safetensors"}}', encoding="utf-8"
        ),
        "names model-00007-of-00007.safetensors",
    ),
    "a folder in place of weights": (
        lambda f: (f / "more.safetensors").mkdir(),
        "more.safetensors",
    ),
}


@pytest.mark.parametrize(("spoil", "sentence"), SPOILED.values(), ids=SPOILED)
def test_a_broken_folder_is_named_with_its_file(folder: Path, spoil: Spoil, sentence: str) -> None:
    spoil(folder)
    with pytest.raises(BrokenFolder, match=sentence) as caught:
        check_policy_folder(folder)
    assert str(folder) in str(caught.value)


def test_a_file_or_nothing_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for path in (tmp_path / "file", tmp_path / "nothing"):
        with pytest.raises(BrokenFolder, match=f"no folder {path}"):
            check_policy_folder(path)
