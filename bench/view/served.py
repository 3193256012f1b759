"""The command that is measured, `toolwright view --web`, in a process of its own, asked by HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil

from bench.errors import BenchError

RUN = "run"
"""The name of the folder, and so of the run on the pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One server. address: with its last slash."""

    pid: int
    address: str

    def get(self, what: str, **asked: str) -> Any:
        """An answer about the run."""
        question = urlencode({"run": RUN, **asked})
        with urllib.request.urlopen(f"{self.address}api/{what}?{question}", timeout=600) as answer:
            return json.load(answer)

    def whole(self) -> Any:
        """The run's state, once all of it was read."""
        while True:
            (state,) = self.get("runs")["runs"]
            if state["whole"]:
                return state
            time.sleep(0.2)

    @property
    def memory(self) -> int:
        """Bytes that the process holds now."""
        return int(psutil.Process(self.pid).memory_info().rss)

    @property
    def peak_memory(self) -> int:
        """The most bytes that the process has held."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else self.memory


@contextmanager
def served(home: Path) -> Iterator[Served]:
    """Of the run below `home`, which gets the index too. BenchError where it does not begin."""
    command = [sys.executable, "-m", "console.cli", "view", "--web", str(home / RUN)]
    variables = {**os.environ, "XDG_CACHE_HOME": str(home)}
    variables.pop("TOOLWRIGHT_TOKEN", None)
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, env=variables
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if (found := re.search(r"http://\S+/", line)) is None:
            raise BenchError(f"`toolwright view --web` did not begin: {line.strip() or 'no word'}")
        yield Served(pid=process.pid, address=found[0])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
