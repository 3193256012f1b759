"""An adapter's folder that is not whole, or is of another policy, is refused by its headers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.serving.publish.adapter_folder import check_adapter_folder
from engine.serving.publish.policy_folder import BrokenFolder
from engine.serving.publish.policy_shape import PolicyShape
from tests.support.adapters import write_adapter

pytestmark = pytest.mark.quick

STEM = "model.layers.0.self_attn.q_proj"
A, B = (f"base_model.model.{STEM}.lora_{half}.weight" for half in "AB")
POLICY = PolicyShape(
    config={}, tensors={f"{STEM}.weight": ("F32", (8, 4)), "model.norm.weight": ("F32", (4,))}
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policy").mkdir()
    tensors = {f"{STEM}.weight": np.zeros((8, 4), np.float32)}
    save_file(tensors, tmp_path / "policy" / "model.safetensors")
    return write_adapter(tmp_path / "policy", tmp_path / "adapter", seed=1, rank=2)


def config(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "adapter_config.json"
        text = json.dumps({**json.loads(file.read_text(encoding="utf-8")), **changes})
        file.write_text(text, encoding="utf-8")

    return change


def tensor(name: str, shape: tuple[int, ...] | None) -> Callable[[Path], None]:
    """Stores a tensor of another shape, or leaves it out."""

    def change(folder: Path) -> None:
        file = folder / "adapter_model.safetensors"
        tensors = load_file(file)
        tensors.pop(name, None)
        save_file(tensors | ({name: np.zeros(shape, np.float32)} if shape else {}), file)

    return change


def cut(folder: Path) -> None:
    file = folder / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])


def test_a_whole_adapter_is_taken(folder: Path) -> None:
    check_adapter_folder(folder, POLICY)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / "adapter_config.json").unlink(), "adapter_config.json cannot be"),
        (lambda folder: (folder / "adapter_model.safetensors").unlink(), "adapter_model"),
        (cut, "not written to its end"),
        (config(peft_type="IA3"), "is not the configuration of a LoRA"),
        (config(r=None), "is not the configuration of a LoRA"),
        (config(r=3), r"lora_A.* has the shape \[2, 4\], the policy takes \[3, 4\]"),
        (tensor(A, (2, 5)), r"lora_A.* has the shape \[2, 5\], the policy takes \[2, 4\]"),
        (tensor(B, (4, 2)), r"lora_B.* has the shape \[4, 2\], the policy takes \[8, 2\]"),
        (tensor(B, None), r"has no tensor .*lora_B\.weight"),
        (tensor(A.replace("q_proj", "w_proj"), (2, 4)), "w_proj, which is not a matrix"),
        (
            tensor("base_model.model.model.norm.lora_A.weight", (2, 4)),
            "norm, which is not a matrix",
        ),
        (tensor("w", (1,)), "'w' is not PEFT's name"),
    ],
)
def test_what_is_not_an_adapter_of_the_policy_is_named(
    folder: Path, change: Callable[[Path], None], says: str
) -> None:
    change(folder)
    with pytest.raises(BrokenFolder, match=says):
        check_adapter_folder(folder, POLICY)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BrokenFolder, match="no folder"):
        check_adapter_folder(tmp_path / "none", POLICY)
