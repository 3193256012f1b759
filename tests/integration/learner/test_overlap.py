"""Exchange during the passes: what reads the weights completes them first.

`test_parallel` compares its numbers, on several ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from learner.config.weights import Lora, Optimizer, Parallel
from learner.intake.ledger import Ledger
from learner.model import policy as policies
from learner.model.policy import Policy, borrowed_weights, load_policy
from learner.saving.checkpoint import Checkpoints
from tests.integration.learner.test_checkpoint import train

pytestmark = pytest.mark.quick

OVERLAPPED = Parallel(distributed_optimizer=True, overlap=True)


def checkpoint(policy: Policy, folder: Path) -> None:
    Checkpoints(folder / "run", 1).save(policy, 1, "a", {}, Ledger())


def borrow(policy: Policy, _folder: Path) -> None:
    with borrowed_weights(policy, policy.source):
        pass


def save(policy: Policy, folder: Path) -> None:
    policy.save(folder / "out")


def save_adapters(policy: Policy, folder: Path) -> None:
    policy.save_adapters(folder / "out")


@pytest.mark.parametrize("read", [save, save_adapters, checkpoint, borrow])
def test_weights_are_complete_before_they_are_read(
    tmp_path: Path, model_folder: Path, one_rank: None, read: Callable[[Policy, Path], None]
) -> None:
    lora = Lora(rank=2) if read is save_adapters else None
    policy = load_policy(model_folder, Optimizer(), "float32", lora, layout=OVERLAPPED)
    train(policy, range(1))
    with patch.object(
        policy.network, "start_param_sync", wraps=policy.network.start_param_sync
    ) as gathered:
        read(policy, tmp_path)
        read(policy, tmp_path)
    gathered.assert_called_once_with(force_sync=True)


def test_gradients_have_several_buckets_only_with_overlap(
    monkeypatch: pytest.MonkeyPatch, model_folder: Path, one_rank: None
) -> None:
    monkeypatch.setattr(policies, "BUCKET_NUMBERS", 4000)
    plain, overlapped = (
        load_policy(model_folder, Optimizer(), "float32", layout=layout)
        for layout in (Parallel(distributed_optimizer=True), OVERLAPPED)
    )
    assert len(plain.network.bucket_groups) == 1
    assert len(overlapped.network.bucket_groups) > 2


@pytest.mark.parametrize("kind", ["adapters", "muon"])
def test_steps_are_those_without_overlap(
    monkeypatch: pytest.MonkeyPatch, model_folder: Path, one_rank: None, kind: str
) -> None:
    """Megatron knows after the first step which gradients it must wait for."""
    monkeypatch.setattr(policies, "BUCKET_NUMBERS", 1000)
    norms = []
    for overlap in (False, True):
        torch.manual_seed(1)  # adapters begin at random
        policy = load_policy(
            model_folder,
            Optimizer(kind="muon" if kind == "muon" else "adam"),
            "float32",
            Lora(rank=2) if kind == "adapters" else None,
            layout=Parallel(overlap=overlap),
            recompute="full",
        )
        norms.append(train(policy, range(3)))
    assert norms[0] == norms[1]
