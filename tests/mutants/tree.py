"""A copy of the tree in which one bug at a time is planted, and the programs that run there.

Invariants
- The checkout is never changed.
- Everything that a test starts imports the copy, through PYTHONPATH; only packages of third parties
  come from the checkout's environments.
- A program that is stopped takes its children along: each has a process group of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.table import ROOT, Mutant

ENVIRONMENTS = (".venv", ".venv-sglang")
LOOK_S = 0.5
"""Seconds between looks whether the run is over."""
END_S = 20.0
"""Seconds in which an interrupted program tidies up, before it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A program that has ended. code: None if it ran out of time."""

    code: int | None
    output: str
    seconds: float


class Stopped(Exception):
    """The run is over: what the program did does not count."""


class Tree:
    """One copy, for one program at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stopped = threading.Event()
        self._stamp = int(time.time())

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """The bug is in the copy within the block."""
        path = self.folder / mutant.file
        source = path.read_text(encoding="utf-8")
        self._write(path, mutant.planted(source))
        try:
            yield
        finally:
            self._write(path, source)

    def _write(self, path: Path, source: str) -> None:
        """With a time of change of its own: bytecode of two writes in one second looks fresh."""
        path.write_text(source, encoding="utf-8")
        self._stamp += 2
        os.utime(path, (self._stamp, self._stamp))

    def stop(self) -> None:
        """Ends what runs here, soon; called from another thread."""
        self._stopped.set()

    def run(self, *words: str, timeout: float) -> Done:
        """Runs Python in the copy with these words, for `timeout` seconds at most. Raises Stopped
        after `stop`."""
        began = time.monotonic()
        paths = f"{self.folder}{os.pathsep}{self.folder / 'proto'}"
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            process = subprocess.Popen(
                [self.folder / ".venv/bin/python", *words],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            )
            code: int | None = None
            try:
                while code is None and time.monotonic() - began < timeout:
                    if self._stopped.is_set():
                        raise Stopped
                    with suppress(subprocess.TimeoutExpired):
                        code = process.wait(LOOK_S)
            finally:
                _end(process)
            output.seek(0)
            return Done(code=code, output=output.read(), seconds=time.monotonic() - began)


@contextmanager
def copied() -> Iterator[Tree]:
    """A copy of the tracked files, removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        for file in filter(None, listed.stdout.split("\0")):
            if (ROOT / file).is_file():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, folder / file)
        for environment in ENVIRONMENTS:
            if (ROOT / environment).exists():
                (folder / environment).symlink_to((ROOT / environment).resolve())
        yield Tree(folder)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the program if it still runs, and what is left of its process group."""
    if process.poll() is None:
        _signal(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
