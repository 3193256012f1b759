"""A worker's process does not outlive its coordinator."""

from __future__ import annotations

import subprocess

import pytest

from engine.serving.crew.processes.worker_process import work_command

pytestmark = pytest.mark.quick


def test_a_worker_whose_coordinator_died_during_its_start_ends() -> None:
    """The parent of this process is the test, so the coordinator, process 1, is not it."""
    words = [*work_command("127.0.0.1:1", "w1")[:-1], "1"]
    found = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == 1
    assert "the process that started this one, 1, has ended" in found.stderr
