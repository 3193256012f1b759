"""The estimate of a rank's memory beside the live tensors of a real step, within 5 %."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

from learner.config.objective import Kl, Loss
from learner.config.training import TrainingTable
from learner.config.weights import Lora, Optimizer
from learner.model.policy import Policy, load_policy
from learner.training.batch import Row
from learner.training.objective import PolicyObjective
from learner.training.update import improve
from tests.support.live_tensors import LiveTensors, storage_bytes
from toolwright.model.learner_memory import estimate, read_decoder

pytestmark = pytest.mark.slow

WITHIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A policy, its training, and the rows of one micro-batch."""

    family: str = "qwen3"
    hidden: int = 128
    layers: int = 4
    groups: int = 4
    head: int = 16
    feed_forward: int = 384
    vocabulary: int = 1024
    tied: bool = True
    rows: int = 4
    tokens: int = 256
    precision: str = "float32"
    recompute: str = "none"
    lora: bool = False
    muon: bool = False


SHAPES = {
    "qwen3": Shape(),
    "qwen2": Shape(family="qwen2"),
    "llama": Shape(family="llama", tied=False, vocabulary=4096),
    "experts": Shape(family="qwen3_moe", feed_forward=128),
    "deep": Shape(layers=12),
    "wide": Shape(hidden=256, head=32, groups=2, feed_forward=1280),
    "one long row": Shape(rows=1, tokens=1024),
    "large vocabulary": Shape(vocabulary=80_000, layers=2),
    "recompute": Shape(recompute="full", layers=10, feed_forward=1500),
    "selective recompute": Shape(recompute="selective", layers=10),
    "selective recompute, adapters": Shape(recompute="selective", layers=10, lora=True),
    "selective recompute of experts": Shape(
        recompute="selective", family="qwen3_moe", feed_forward=128, layers=6
    ),
    "recompute, adapters": Shape(recompute="full", layers=10, feed_forward=1500, lora=True),
    "bfloat16": Shape(precision="bfloat16"),
    "adapters": Shape(lora=True),
    "bfloat16 adapters": Shape(precision="bfloat16", lora=True),
    "muon": Shape(muon=True),
}


def test_every_shape_is_within_five_percent(
    one_rank: None, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for name, shape in SHAPES.items():
        with subtests.test(name):
            states, peak, expected_states, expected_peak = _measured(shape, tmp_path / name)
            assert states == pytest.approx(expected_states, rel=0.001)
            assert states + peak == pytest.approx(expected_peak, rel=WITHIN)
        gc.collect()


def _measured(shape: Shape, folder: Path) -> tuple[int, int, int, int]:
    """(states, largest memory beside them, both as estimated with the states), in bytes"""
    _write(shape, folder)
    table = TrainingTable(
        precision=shape.precision,  # type: ignore[arg-type]
        recompute=shape.recompute,  # type: ignore[arg-type]
        lora=Lora(rank=8, alpha=16.0) if shape.lora else None,
        optimizer=Optimizer(lr=1e-4, kind="muon" if shape.muon else "adam"),
    )
    policy = load_policy(
        folder, table.optimizer, table.precision, table.lora, recompute=table.recompute
    )
    _step(policy, _rows(shape, 1, 16))
    states = list(_states(policy))
    with LiveTensors(states) as live:
        _step(policy, _rows(shape, shape.rows, shape.tokens))
    found = estimate(read_decoder(folder), table)
    whole = found.peak(shape.rows * shape.tokens)
    return storage_bytes(states), live.peak, found.states, whole


def _states(policy: Policy) -> Iterator[torch.Tensor]:
    """Weights, gradients and the optimizer's state."""
    for parameter in policy.bare.parameters():
        yield parameter
        if getattr(parameter, "main_grad", None) is not None:
            yield parameter.main_grad
    yield from policy.bare.buffers()
    for part in policy.optimizer.chained_optimizers:
        yield from chain.from_iterable(group["params"] for group in part.optimizer.param_groups)
        for state in part.optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def _step(policy: Policy, rows: list[Row]) -> None:
    improve(
        policy,
        rows,
        PolicyObjective(loss=Loss(), kl=Kl(), correction="token_truncate"),
        reference=None,
        updates=1,
        budget=1 << 30,
        step=0,
        steps=10,
        drop_silent=False,
    )


def _rows(shape: Shape, count: int, tokens: int) -> list[Row]:
    draw = np.random.default_rng(0)
    target = np.arange(tokens) > 0
    return [
        Row(
            trajectory=str(number),
            tokens=draw.integers(0, shape.vocabulary, tokens),
            target=target,
            behaviour=np.full(tokens, -np.log(shape.vocabulary), np.float32),
            temperature=np.ones(tokens, np.float32),
            fresh=target,
            advantage=np.where(target, draw.normal(), 0).astype(np.float32),
        )
        for number in range(count)
    ]


def _write(shape: Shape, folder: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.hidden // shape.head,
        "num_key_value_heads": shape.groups,
        "intermediate_size": shape.feed_forward,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": shape.tied,
        "bos_token_id": None,
        "eos_token_id": 1,
        **({} if shape.family == "qwen2" else {"head_dim": shape.head}),
    }
    if shape.family == "qwen3_moe":
        settings |= {
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": shape.feed_forward,
            "norm_topk_prob": True,
        }
    config = AutoConfig.for_model(shape.family, **settings)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
