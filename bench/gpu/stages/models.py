"""Policy folders with random weights and rows of random tokens, made on the spot."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from bench.gpu.stages import machine
from bench.gpu.stages.sizes import SIZES
from learner.ranks import device
from learner.training.batch import Row

VOCABULARY = 98
FAMILIES = ("qwen2-untied", "qwen3-tied", "llama-untied")


def small_model(family: str) -> Path:
    """A folder of a four-layer model with noisy weights, norms and biases included."""
    folder = machine.folder() / family
    if folder.is_dir():
        return folder
    torch.manual_seed(0)
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 80,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "bos_token_id": None,
        "eos_token_id": 1,
        "tie_word_embeddings": family.endswith("-tied"),
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    config: PretrainedConfig
    if family.startswith("qwen2"):
        config = Qwen2Config(**shape)
    elif family.startswith("qwen3"):
        config = Qwen3Config(**shape, head_dim=16)
    else:
        config = LlamaConfig(**shape, head_dim=16, attention_bias=False)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.08)
    model.save_pretrained(folder)
    return folder


def sized_model(name: str) -> Path:
    """A bfloat16 folder of one of SIZES, made on the device."""
    folder = machine.folder() / name
    if folder.is_dir():
        return folder
    size = SIZES[name]
    config = Qwen3Config(
        **size.config,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        bos_token_id=None,
        eos_token_id=1,
    )
    with torch.device(device.device()):
        AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    return folder


def random_rows(name: str, tokens: int, longest: int) -> list[Row]:
    """Rows of about `tokens` in all. Lengths are log-normal, three of four tokens targets."""
    vocabulary = SIZES[name].vocabulary
    draw = np.random.default_rng(0)
    rows: list[Row] = []
    while tokens > 0:
        length = int(min(longest, max(64, draw.lognormal(math.log(longest / 4), 0.7))))
        tokens -= length
        target = np.ones(length, dtype=bool)
        target[: length // 4] = False
        rows.append(
            Row(
                trajectory=str(len(rows)),
                tokens=draw.integers(0, vocabulary, length),
                target=target,
                behaviour=np.full(length, -math.log(vocabulary), np.float32),
                temperature=np.ones(length, np.float32),
                fresh=target,
                advantage=np.where(target, draw.normal(), 0).astype(np.float32),
            )
        )
    return rows
