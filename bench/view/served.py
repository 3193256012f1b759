"""The measured command, `toolwright view --web`, in a process of its own, and its HTTP API."""

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

from bench.errors import BenchError

RUN = "run"
"""The name of the folder, and so of the run on the pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One server."""

    pid: int
    address: str
    """URL with its last slash."""

    def get(self, what: str, **words: str) -> Any:
        """An answer about the run."""
        question = urlencode({"run": RUN, **words})
        with urllib.request.urlopen(f"{self.address}api/{what}?{question}", timeout=600) as answer:
            return json.load(answer)

    def whole(self) -> Any:
        """The run's state, once the server has read all of it."""
        while True:
            (state,) = self.get("runs")["runs"]
            if state["whole"]:
                return state
            time.sleep(0.2)


@contextmanager
def served(home: Path) -> Iterator[Served]:
    """A server of the run below `home`. The index lies there too. Raises BenchError if the server
    does not start."""
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
