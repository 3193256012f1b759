"""Four ranks over gloo give the loss and the gradients of one process (within 1e-5).

They also go on from its checkpoint, whatever part of the weights and moments each of them holds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bench.ready import free_ports
from tests.integration.learner import gradients_main
from tests.integration.learner.gradients_main import WAYS, compute

ROOT = Path(__file__).parents[3]
SHARED = [name for name in WAYS if name != "alone"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parallel") / "checkpoint"


@pytest.fixture(scope="module")
def alone(model_folder: Path, checkpoint: Path) -> dict[str, torch.Tensor]:
    """What one process finds: this one. It leaves a checkpoint."""
    compute(model_folder, checkpoint, checkpoint.with_name("alone"), "alone")
    return load_file(checkpoint.with_name("alone"))


@pytest.fixture(scope="module")
def together(
    model_folder: Path, checkpoint: Path, alone: dict[str, torch.Tensor]
) -> dict[str, dict[str, torch.Tensor]]:
    """What four ranks find, by name of how they share the work."""
    folder = checkpoint.with_name("together")
    folder.mkdir()
    agent, *ports = free_ports(1 + len(SHARED))
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4"),
        *("--master-addr", "127.0.0.1", "--master-port", str(agent)),
        *(str(gradients_main.__file__), str(model_folder), str(checkpoint), str(folder)),
        *(f"{name}={port}" for name, port in zip(SHARED, ports, strict=True)),
    ]
    path = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: load_file(folder / name) for name in SHARED}


@pytest.mark.parametrize("name", SHARED)
def test_four_ranks_agree_with_one(
    alone: dict[str, torch.Tensor], together: dict[str, dict[str, torch.Tensor]], name: str
) -> None:
    found = together[name]
    assert found.keys() == alone.keys()
    assert 0 < alone["masked"] < alone["compared"]
    worst = {key: float((found[key] - alone[key]).abs().max()) for key in alone}
    # Norms are of any size. The second step's is of weights that Adam has moved: see below. The
    # third begins with the checkpoint's.
    worst |= {k: v / float(alone[k]) for k, v in worst.items() if k.startswith("norm.")}
    exact = {k: v for k, v in worst.items() if not k.startswith(("weight.", "norm.1"))}
    assert max(exact.values()) < 1e-5, exact
    # Adam divides by the gradient's size: where that is all rounding, a weight may differ more.
    assert max(worst.values()) < 1e-3
