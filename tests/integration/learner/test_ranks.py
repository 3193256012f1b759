"""Ranks wait for each other as long as rank 0 says that it lives, and no longer than agreed. A rank
that does not answer is named.

Also: a TransformerEngine that does not load is as good as none.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from learner.errors import LearnerError
from learner.ranks import device, parallel
from tests.integration.learner.forked import ROOT, run_ranks

pytestmark = pytest.mark.slow


def test_a_wait_is_bounded_and_renewed_by_rank_0(tmp_path: Path) -> None:
    run_ranks("ranks_main", tmp_path)
    assert (tmp_path / "patient").read_text(encoding="utf-8") == "the groups"
    assert "Timed out waiting 4000ms" in (tmp_path / "hung").read_text(encoding="utf-8")
    for kind in ("asleep", "gone"):
        sentence = (tmp_path / kind).read_text(encoding="utf-8")
        assert sentence.startswith("rank 0 waited in a collective, and rank 1 did not answer")
        assert "look at the last lines of rank 1" in sentence
        assert "raise parallel.timeout_s" in sentence


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


def test_a_transformer_engine_that_does_not_load_is_as_good_as_none(
    tmp_path: Path, model_folder: Path
) -> None:
    write_broken(tmp_path, "transformer_engine", "OSError('libcudnn.so.9: cannot open')")
    paths = (tmp_path, ROOT, ROOT / "proto")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, "-m", "learner.cli", "check", str(model_folder)]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "transformer_engine is installed and does not load" in done.stderr
    assert "agree with transformers" in done.stdout


@pytest.mark.parametrize(
    "error",
    ["OSError('libcudnn.so.9')", "None.cuda"],
)
def test_a_package_that_does_not_load_looks_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: str
) -> None:
    write_broken(tmp_path, "broken_engine", error)
    monkeypatch.syspath_prepend(tmp_path)
    device.hide_broken_package("broken_engine", "pytorch")
    try:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("broken_engine.pytorch")
    finally:
        del sys.modules["broken_engine"]
    assert "broken_engine is installed and does not load" in capsys.readouterr().err


def write_broken(site: Path, name: str, error: str) -> None:
    """A package whose `pytorch` raises the error when it is imported."""
    package = site / name
    (package / "pytorch").mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "pytorch" / "__init__.py").write_text(f"raise {error}\n", encoding="utf-8")


class Joined(Exception):
    """Stands for the beginning of a process group."""


@pytest.mark.parametrize("cuda", [True, False])
def test_a_gpus_group_is_begun_with_its_device(monkeypatch: pytest.MonkeyPatch, cuda: bool) -> None:
    given: dict[str, Any] = {}

    def begin(**options: Any) -> None:
        given.update(options)
        raise Joined

    monkeypatch.setattr(device, "has_cuda", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _device: None)
    monkeypatch.setattr(parallel.dist, "init_process_group", begin)
    monkeypatch.setenv("LOCAL_RANK", "3")
    with pytest.raises(Joined), parallel.ranks():
        pass
    own = {"backend": "nccl", "device_id": torch.device("cuda", 3)}
    assert given.items() >= (own if cuda else {"backend": "gloo"}).items()
    assert ("device_id" in given) == cuda
