"""Ranks wait for each other as long as rank 0 says that it lives, and no longer than agreed.

Also: a TransformerEngine that does not load is as good as none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from learner.errors import LearnerError
from learner.ranks import parallel
from tests.integration.learner.test_parallel import ROOT
from tests.support.net import free_port

MAIN = Path(__file__).with_name("ranks_main.py")
PATHS = os.pathsep.join([str(ROOT), str(ROOT / "proto")])


@pytest.mark.parametrize("kind", ["patient", "hung"])
def test_a_wait_is_bounded_and_renewed_by_rank_0(tmp_path: Path, kind: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    command += [str(MAIN), kind, str(tmp_path / "got")]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PATHS}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=200, check=False
    )
    if kind == "patient":
        assert done.returncode == 0, done.stderr[-3000:]
        assert (tmp_path / "got").read_text() == "the groups"
    else:
        assert done.returncode != 0
        assert not (tmp_path / "got").exists()


@pytest.mark.parametrize(
    ("ways", "mend"),
    [
        ({"tensor": 2, "pipeline": 2}, "--nproc-per-node 4 or"),
        ({"tensor": 2, "context": 3}, "--nproc-per-node 6 or"),
        ({"expert": 4}, "--nproc-per-node 4 or"),
    ],
)
def test_too_few_ranks_are_told_how_many_it_takes(ways: dict[str, int], mend: str) -> None:
    with pytest.raises(LearnerError, match=mend), parallel.ranks(**ways):
        pass


@pytest.mark.parametrize(
    "error", ["OSError('libcudnn.so.9: cannot open')", "RuntimeError('no CUDA')"]
)
def test_a_transformer_engine_that_does_not_load_is_as_good_as_none(
    tmp_path: Path, model_folder: Path, error: str
) -> None:
    package = tmp_path / "site" / "transformer_engine"
    (package / "pytorch").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "pytorch" / "__init__.py").write_text(f"raise {error}\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), PATHS])}
    command = [sys.executable, "-m", "learner.cli", "check", str(model_folder)]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "transformer_engine is installed and does not load" in done.stderr
    assert "agree with transformers" in done.stdout
