"""Two ranks give the loss and the gradients of one, the tower's too, however they share them."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from tests.integration.learner.forked import run_ranks
from tests.integration.learner.seeing import write_seeing_model
from tests.integration.learner.seeing_main import WAYS

pytestmark = pytest.mark.slow

SHARED = [name for name in WAYS if name != "alone"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, torch.Tensor]]:
    """By name of how ranks share the work."""
    folder = tmp_path_factory.mktemp("seeing")
    model = write_seeing_model(folder / "model", released=False)
    run_ranks("seeing_main", model, folder)
    return {name: load_file(folder / name) for name in WAYS}


@pytest.mark.parametrize("name", SHARED)
def test_two_ranks_agree_with_one(found: dict[str, dict[str, torch.Tensor]], name: str) -> None:
    alone, shared = dict(found["alone"]), dict(found[name])
    everything, own = alone.pop("own images"), shared.pop("own images")
    assert everything == 2
    assert own in ((0, 2) if name == "data" else (2,))
    assert shared.keys() == alone.keys()
    assert any("visual" in key and value.any() for key, value in alone.items())
    worst = {key: float((shared[key] - alone[key]).abs().max()) for key in alone}
    worst["norm"] /= float(alone["norm"])
    assert max(worst.values()) < 1e-5, worst
