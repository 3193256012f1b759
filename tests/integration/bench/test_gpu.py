"""The proof for GPUs with its small sizes, on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu.stages import STAGES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_every_stage_passes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu", "--small", "--results", str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [line["stage"] for line in lines] == list(STAGES)
    by_stage = {line["stage"]: line["figures"] for line in lines}
    assert by_stage["whole-loop"]["steps"] == 4
    assert by_stage["bfloat16"]["lora"]["resumed_to_the_bit"]


def test_without_a_gpu_every_stage_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["stage"] for line in lines] == list(STAGES)
    assert all("finds no GPU: look at nvidia-smi" in line["failed"] for line in lines)
    assert done.returncode == 1
