"""Two ranks over gloo give the loss and the gradients of one process (within 1e-5)."""

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

ROOT = Path(__file__).parents[3]
TOGETHER = {"TP=2": 2, "DP=2": 1}
"""By name: ranks of one model copy, of two in all."""


@pytest.fixture(scope="module")
def alone(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """What one process finds: this one."""
    output = tmp_path_factory.mktemp("one") / "1"
    gradients_main.compute(model_folder, output, tensor=1)
    return load_file(output)


@pytest.fixture(scope="module")
def together(
    model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, torch.Tensor]]:
    """What two ranks find, by name of how they share the work."""
    folder = tmp_path_factory.mktemp("two")
    agent, *ports = free_ports(1 + len(TOGETHER))
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("--master-addr", "127.0.0.1", "--master-port", str(agent)),
        *(str(gradients_main.__file__), str(model_folder), str(folder)),
        *(f"{tensor}={port}" for tensor, port in zip(TOGETHER.values(), ports, strict=True)),
    ]
    path = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: load_file(folder / str(tensor)) for name, tensor in TOGETHER.items()}


@pytest.mark.parametrize("name", TOGETHER)
def test_two_ranks_agree_with_one(
    alone: dict[str, torch.Tensor], together: dict[str, dict[str, torch.Tensor]], name: str
) -> None:
    found = together[name]
    assert found.keys() == alone.keys()
    assert 0 < alone["masked"] < alone["compared"]
    worst = {key: float((found[key] - alone[key]).abs().max()) for key in alone}
    # Norms are of any size, and the later ones are of weights that took a step.
    worst |= {k: v / float(alone[k]) for k, v in worst.items() if k.startswith("norm.")}
    exact = {k: v for k, v in worst.items() if not k.startswith("weight.")}
    assert max(exact.values()) < 1e-5, exact
    # Adam divides by the gradient's size: where that is all rounding, a weight may differ more.
    assert max(worst.values()) < 1e-3
