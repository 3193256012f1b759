"""The host waits for the device a few times a step, not in every micro-batch or layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from megatron.core import parallel_state
from megatron.core.models.common.embeddings import rope_utils
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding

from learner.config.objective import Kl, Loss
from learner.config.weights import Lora, Optimizer
from learner.model.packed import Packed, PackedRotary, packed, rotated
from learner.model.policy import Policy, load_policy
from learner.training.objective import PolicyObjective
from learner.training.update import improve
from tests.integration.learner.models import write_model
from tests.integration.learner.rows import make_rows
from tests.support.host_waits import HostWaits

pytestmark = pytest.mark.quick

MEGATRONS = rope_utils._apply_rotary_pos_emb_thd


def waits_of_a_step(policy: Policy, budget: int) -> dict[str, int]:
    known = [p.data for p in policy.bare.parameters()]
    found = HostWaits([*known, *policy.bare.buffers(), *policy.gradient_buffers()])
    with found.counted():
        improve(
            policy,
            make_rows(9),
            PolicyObjective(loss=Loss(), kl=Kl(), correction="token_truncate"),
            reference=None,
            updates=1,
            budget=budget,
            step=0,
            steps=10,
            drop_silent=False,
        )
    return dict(found.found)


@pytest.mark.parametrize(
    "options",
    [{}, {"recompute": "selective"}, {"recompute": "full"}, {"lora": Lora(rank=2)}],
    ids=["plain", "selective", "full", "lora"],
)
@pytest.mark.parametrize("kind", ["qwen2-tied", "qwen3-untied"])
def test_waits_of_a_step(tmp_path: Path, one_rank: None, kind: str, options: Any) -> None:
    """The stats' two tables, the broken rows and the norm: as measured on an H100."""
    policy = load_policy(write_model(tmp_path / "model", kind), Optimizer(), "float32", **options)
    one, many = (waits_of_a_step(policy, budget) for budget in (100_000, 20))
    assert (
        one
        == many
        == {
            "step.py:_collect": 2,
            "update.py:finite_gradients": 1,
            "gradient_norm.py:global_norm": 1,
        }
    )


def test_packed_positions_rotate_as_megatrons_without_its_waits(one_rank: None) -> None:
    """Megatron's function for TransformerEngine's layout, and ours in its place."""
    lengths = [5, 1, 9, 3]
    own, row = rotary(8), packed(lengths, positions_of(lengths), fused=True)
    queries = torch.randn(sum(lengths), 4, 8)
    group = parallel_state.get_context_parallel_group()
    config = SimpleNamespace(
        apply_rope_fusion=False, rotary_interleaved=False, multi_latent_attention=False
    )
    found = {}
    for name, function, table in (
        ("megatron", MEGATRONS, RotaryEmbedding.forward(own, max(lengths))),
        ("ours", rotated, per_token(own, row)),
    ):
        waits = HostWaits([queries, table, row.cu_seqlens_q])
        with waits.counted(), patch.object(rope_utils, "_apply_rotary_pos_emb_thd", function):
            found[name] = rope_utils.apply_rotary_pos_emb(
                queries, table, config, row.cu_seqlens_q, cp_group=group
            )
        assert sum(waits.found.values()) == (2 if name == "megatron" else 0)
    assert (found["megatron"] - found["ours"]).abs().max() < 1e-6


def test_fused_rotary_positions_get_megatrons_own_table(one_rank: None) -> None:
    lengths = [5, 9]
    own = rotary(8)
    row = packed(lengths, positions_of(lengths), fused=True, fused_rope=True)
    assert per_token(own, row).shape == (max(lengths), 1, 1, 8)


def positions_of(lengths: Sequence[int]) -> torch.Tensor:
    return torch.cat([torch.arange(n) for n in lengths])[None]


def rotary(size: int) -> PackedRotary:
    return PackedRotary(size, rotary_percent=1.0, rotary_base=5000.0, use_cpu_initialization=True)


def per_token(own: PackedRotary, row: Packed) -> torch.Tensor:
    """The table as a GPTModel takes it."""
    options = {"packed_seq_params": row}
    config = SimpleNamespace(sequence_parallel=False, context_parallel_size=1)
    length = own.get_rotary_seq_len(None, None, torch.zeros(1), config, **options)
    return own(length, packed_seq=True)
