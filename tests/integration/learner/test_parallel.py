"""Ranks over gloo give the loss, the gradients and the weights of one process (within 1e-5).

They also go on from each other's checkpoints, whatever part of the weights and moments each of them
holds.
"""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from tests.integration.learner.forked import run_ranks
from tests.integration.learner.gradients_main import WAYS
from tests.integration.learner.models import write_model

pytestmark = pytest.mark.slow

SHARED = [name for name, way in WAYS.items() if way.after]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, torch.Tensor]]:
    """What ranks find, by name of how they share the work."""
    models, folder = (tmp_path_factory.mktemp(name) for name in ("models", "found"))
    for kind in {way.model for way in WAYS.values()}:
        write_model(models / kind, kind)
    run_ranks("gradients_main", models, folder)
    return {name: load_file(folder / name) for name in WAYS}


@pytest.mark.parametrize("name", SHARED)
def test_ranks_agree_with_one(found: dict[str, dict[str, torch.Tensor]], name: str) -> None:
    shared = found[name]
    alone = found[next(n for n, w in WAYS.items() if w.model == WAYS[name].model and not w.after)]
    assert shared.keys() == alone.keys()
    assert 0 < alone["masked"] < alone["compared"]
    worst = {key: float((shared[key] - alone[key]).abs().max()) for key in alone}
    # Norms are of any size. The second step's is of weights that Adam has moved: see below. The
    # third begins with the checkpoint's.
    worst |= {k: v / float(alone[k]) for k, v in worst.items() if k.startswith("norm.")}
    exact = {k: v for k, v in worst.items() if not k.startswith(("weight.", "norm.1"))}
    assert max(exact.values()) < 1e-5, exact
    # Adam divides by the gradient's size: where that is all rounding, a weight may differ more.
    assert max(worst.values()) < 1e-3
