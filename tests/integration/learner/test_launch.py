"""`python -m learner.launch` is torchrun that ends as the learner does: the real torchrun."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MAIN = Path(__file__).with_name("ending_main.py")


def launched(how: str, ranks: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "learner.launch", "--nproc-per-node", str(ranks)]
    alone = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
    return subprocess.run(
        [*command, *alone, str(MAIN), how], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("how", "ranks", "status", "last"),
    [
        ("taken", 2, 5, "learner: another learner has the run:\nsince β\n"),
        ("killed", 1, 1, ""),
    ],
)
def test_the_status_is_rank_0s(how: str, ranks: int, status: int, last: str) -> None:
    done = launched(how, ranks)
    assert done.returncode == status, done.stderr
    if last:
        assert done.stderr.endswith(last)
    else:
        assert "Signal 9 (SIGKILL)" in done.stderr
