"""Runs the stages in worker processes and passes their lines on.

Invariants
- A failure stops no other stage. After one the rest goes on in a new process: a stage that ran out
  of memory or broke the CUDA context takes its process with it.
- Every chosen stage has exactly one line, also if its process died or ran out of time.
- A failed line with `alive` comes from a process that goes on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

WORKER = (sys.executable, "-m", "bench.gpu.worker")
STAGE_LIMIT_S = 240.0
"""Longest time of one stage, its imports included."""

Line = dict[str, Any]


def run_stages(
    names: Sequence[str], *, small: bool, worker: Sequence[str] = WORKER
) -> Iterator[Line]:
    """A line for each stage: stage, seconds, and `figures` or `failed`."""
    left = list(names)
    while left:
        for line in _one_worker([*worker, *(["--small"] if small else [])], left):
            left = left[1:]
            yield line


def _one_worker(command: Sequence[str], names: Sequence[str]) -> Iterator[Line]:
    """Lines of one process, up to and including its first failure."""
    with tempfile.TemporaryDirectory(prefix="bench-gpu-") as scratch:
        log = Path(scratch) / "stderr"
        with log.open("wb") as errors:
            worker = subprocess.Popen(
                [*command, *names],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "TMPDIR": scratch, "HF_HUB_OFFLINE": "1"},
            )
        assert worker.stdout is not None
        watch = _Watch(worker)
        try:
            for name in names:
                watch.begin()
                text = worker.stdout.readline()
                seconds = watch.seconds()
                if not text:
                    yield _died(name, seconds, worker.wait(), log)
                    return
                line: Line = json.loads(text)
                goes_on = line.pop("alive", False)
                yield line
                if "failed" in line and not goes_on:
                    return
        finally:
            watch.end()
            worker.kill()
            worker.wait()


def _died(name: str, seconds: float, code: int, log: Path) -> Line:
    last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
    reason = f"its process ended with status {code}"
    if seconds >= STAGE_LIMIT_S:
        reason = f"it took longer than {STAGE_LIMIT_S:.0f} s"
    return {"stage": name, "seconds": round(seconds, 1), "failed": reason, "stderr": last}


class _Watch:
    """Ends a worker whose stage takes longer than STAGE_LIMIT_S."""

    def __init__(self, worker: subprocess.Popen[bytes]) -> None:
        self._worker = worker
        self._timer: threading.Timer | None = None
        self._began = 0.0

    def begin(self) -> None:
        self.end()
        self._began = time.monotonic()
        self._timer = threading.Timer(STAGE_LIMIT_S, self._worker.kill)
        self._timer.daemon = True
        self._timer.start()

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
