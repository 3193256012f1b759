"""Checks that a folder holds a whole adapter (PEFT's LoRA) of a policy, by its headers.

A server finds a fault only while it loads, and it ignores tensors that it does not know.
"""

from __future__ import annotations

from pathlib import Path

from engine.serving.publish.policy_folder import CONFIG_BYTES, BrokenFolder, json_object
from engine.serving.publish.policy_shape import PolicyShape
from toolwright.model.model_folder import ModelFolderError
from toolwright.model.weights import read_tensors

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
_STEM = "base_model.model."
"""Begins PEFT's names of tensors; the policy's own name follows."""
_HALVES = (".lora_A.weight", ".lora_B.weight")


def check_adapter_folder(folder: Path, policy: PolicyShape) -> None:
    """Raises BrokenFolder unless the folder holds an adapter of `policy`.

    Each adapted matrix [out, in] needs an A [rank, in] and a B [out, rank], of the rank in the
    adapter's configuration.

    Reads the disk; call it from a thread.
    """
    if not folder.is_dir():
        raise BrokenFolder(f"no folder {folder}")
    config = json_object(folder / CONFIG, CONFIG_BYTES)
    rank = config.get("r")
    if config.get("peft_type") != "LORA" or not isinstance(rank, int):
        raise BrokenFolder(f"{folder / CONFIG} is not the configuration of a LoRA")
    try:
        tensors = read_tensors(folder / TENSORS)
    except ModelFolderError as error:
        raise BrokenFolder(str(error)) from error
    adapted = {_matrix(name) for name in tensors}
    if not adapted:
        raise BrokenFolder(f"{folder / TENSORS} has no tensors")
    for matrix in sorted(adapted):
        of_policy = policy.tensors.get(f"{matrix}.weight")
        if of_policy is None or len(of_policy[1]) != 2:
            raise BrokenFolder(f"{folder} adapts {matrix}, which is not a matrix of the policy")
        out, width = of_policy[1]
        for half, shape in zip(_HALVES, ((rank, width), (out, rank)), strict=True):
            name = f"{_STEM}{matrix}{half}"
            if name not in tensors:
                raise BrokenFolder(f"{folder / TENSORS} has no tensor {name}")
            if tensors[name].shape != shape:
                raise BrokenFolder(
                    f"tensor {name} of {folder} has the shape {list(tensors[name].shape)}, the "
                    f"policy takes {list(shape)}"
                )


def _matrix(name: str) -> str:
    for half in _HALVES:
        if name.startswith(_STEM) and name.endswith(half):
            return name[len(_STEM) : -len(half)]
    raise BrokenFolder(f"{name!r} is not PEFT's name of an adapter's tensor")
