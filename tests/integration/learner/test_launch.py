"""`python -m learner.launch` is torchrun that ends as the learner does: the real torchrun."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import blocks

pytestmark = pytest.mark.slow

MAIN = Path(__file__).with_name("ending_main.py")


def command(ranks: int, *arguments: str) -> list[str]:
    launch = [sys.executable, "-m", "learner.launch", "--nproc-per-node", str(ranks)]
    alone = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
    return [*launch, *alone, str(MAIN), *arguments]


def launched(how: str, ranks: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(ranks, how), capture_output=True, text=True, timeout=120)


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
        assert "learner: rank 0 ended first, by SIGKILL: the machine may have run" in done.stderr


def test_a_signal_reaches_all_ranks_which_end_in_their_own_time(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(2, "stopped", str(tmp_path)), stderr=subprocess.PIPE, text=True
    )
    try:
        for _ in range(1200):
            if {path.name for path in tmp_path.iterdir()} == {"0", "1"}:
                break
            blocks(0.05, "torchrun starts its ranks")
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert said.endswith("learner: stopped; the same command goes on from step 3\n")
