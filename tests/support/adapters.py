"""Random adapters (LoRA) of a policy folder as PEFT stores them, and the policy with one merged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

ALPHA = 16.0
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def write_adapter(model: Path, folder: Path, *, seed: int, rank: int = 4) -> Path:
    """A PEFT folder with an adapter of every projection of `model`, a folder with one file of
    weights."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(seed)
    tensors = {}
    for name, weight in load_file(model / "model.safetensors").items():
        stem = name.removesuffix(".weight")
        if stem.rpartition(".")[2] in TARGETS:
            out, width = weight.shape
            for half, shape in (("A", (rank, width)), ("B", (out, rank))):
                tensors[f"base_model.model.{stem}.lora_{half}.weight"] = (
                    0.1 * draw.standard_normal(shape)
                ).astype(np.float32)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(model),
        "r": rank,
        "lora_alpha": ALPHA,
        "lora_dropout": 0.0,
        "target_modules": list(TARGETS),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def write_merged(model: Path, adapter: Path, folder: Path) -> Path:
    """A copy of `model` with the adapter merged into its weights."""
    shutil.copytree(model, folder)
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    low = load_file(adapter / "adapter_model.safetensors")
    merged = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        a, b = low.get(f"{stem}.lora_A.weight"), low.get(f"{stem}.lora_B.weight")
        if a is not None and b is not None:
            weight = weight + config["lora_alpha"] / config["r"] * (b @ a)
        merged[name] = weight.astype(np.float32)
    save_file(merged, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
