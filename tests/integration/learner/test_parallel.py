"""Two ranks over gloo give the loss and the gradients of one process (within 1e-5)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.support.net import free_port

ROOT = Path(__file__).parents[3]
MAIN = Path(__file__).with_name("gradients_main.py")


def run(folder: Path, output: Path, *, ranks: int, tensor: int) -> dict[str, torch.Tensor]:
    """What `gradients_main` found with that many ranks."""
    command = [sys.executable]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    command += [str(MAIN), str(folder), str(output), str(tensor)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return load_file(output)


@pytest.fixture(scope="module")
def alone(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """One process."""
    return run(model_folder, tmp_path_factory.mktemp("one") / "out", ranks=1, tensor=1)


@pytest.mark.parametrize(("name", "tensor"), [("TP=2", 2), ("DP=2", 1)])
def test_two_ranks_agree_with_one(
    tmp_path: Path, model_folder: Path, alone: dict[str, torch.Tensor], name: str, tensor: int
) -> None:
    together = run(model_folder, tmp_path / "out", ranks=2, tensor=tensor)
    assert together.keys() == alone.keys()
    worst = {key: float((together[key] - alone[key]).abs().max()) for key in alone}
    exact = {k: v for k, v in worst.items() if not k.startswith("weight.")}
    assert max(exact.values()) < 1e-5, exact
    # Adam divides by the gradient's size: where that is all rounding, a weight may differ more.
    assert max(worst.values()) < 1e-3
