"""Ranks of a test: one process that imports, forks a child for each rank, and waits for them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
LONGEST_SECONDS = 200


def run_ranks(module: str, *arguments: Path) -> None:
    """`python -m tests.integration.learner.MODULE ARGUMENTS`; AssertionError with what it said."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
    done = subprocess.run(
        [sys.executable, "-m", f"tests.integration.learner.{module}", *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def together(lives: Sequence[Callable[[], None]], then: Callable[[], object] = tuple) -> None:
    """A process each, forked. The first that fails ends the others.

    then: what it gives is held while they live; it may have threads, which no fork survives.
    """
    import torch._dynamo  # which every optimizer imports

    assert torch._dynamo
    gc.freeze()  # no rank looks through what all of them imported, again and again
    left = {fork(life) for life in lives}
    held = then()
    while left:
        child, status = os.wait()
        left.discard(child)
        if status:
            for other in left:
                os.kill(other, signal.SIGKILL)
            sys.exit(f"a rank ended with status {status}")
    del held


def fork(life: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        life()
        status = 0
    finally:
        if status:
            traceback.print_exc()
        os._exit(status)
