"""Serves a made run by `toolwright view --web`, in a process of its own, and asks it by HTTP from
outside, one question at a time."""

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
from statistics import median
from typing import Any
from urllib.parse import urlencode

import psutil

from bench.errors import BenchError
from bench.view.made_run import make_run
from engine.journal.schema import FILE_NAME

TRIES = 7
QUESTIONS = {
    "first page": {},
    "by reward": {"sort": "reward"},
    "one tool, by time": {"tool": "search", "sort": "seconds"},
    "a seldom word": {"text": "word19000"},
    "a word of every row": {"text": "word0", "sort": "reward"},
    "a phrase in answers": {"text": '"word1 word0"', "within": "read"},
    "the beginning of a word": {"text": "word19*"},
    "nothing found": {"text": "zebra"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question. cold, warm: seconds of the first answer, and the median of the others."""

    name: str
    found: int
    cold: float
    warm: float


def measure(home: Path, trajectories: int) -> dict[str, Any]:
    """Figures of a run of so many trajectories, made below `home`."""
    run = home / "run"
    make_run(run, trajectories)
    with _served(run, home) as (process, address):
        began = time.perf_counter()
        state = _whole(address)
        read_s = time.perf_counter() - began
        asked = [_ask(address, name, question) for name, question in QUESTIONS.items()]
        one = _get(address, "rows", {"run": "run"})["rows"][0]["name"]
        begun = time.perf_counter()
        _get(address, "trajectory", {"run": "run", "name": one})
        asked.append(
            Asked(name="one trajectory", found=1, cold=time.perf_counter() - begun, warm=0)
        )
        begun = time.perf_counter()
        bars = _get(address, "timeline", {"run": "run", "step": "1"})["bars"]
        asked.append(
            Asked(
                name="a step's timeline", found=len(bars), cold=time.perf_counter() - begun, warm=0
            )
        )
        peak = _peak_bytes(process.pid)
    index = sum(file.stat().st_size for file in (home / "toolwright" / "view").iterdir())
    return {
        "rows": state["rows"],
        "read_s": read_s,
        "journal_mib": (run / FILE_NAME).stat().st_size / 2**20,
        "index_mib": index / 2**20,
        "peak_mib": peak / 2**20,
        "questions": [
            {"name": a.name, "found": a.found, "cold_s": a.cold, "warm_s": a.warm} for a in asked
        ],
    }


@contextmanager
def _served(run: Path, cache: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "console.cli", "view", "--web", str(run)]
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    variables.pop("TOOLWRIGHT_TOKEN", None)
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, env=variables
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if (found := re.search(r"http://\S+/", line)) is None:
            raise BenchError(f"`toolwright view --web` did not begin: {line.strip() or 'no word'}")
        yield process, found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _whole(address: str) -> Any:
    """The run's state, once all of it was read."""
    while True:
        (state,) = _get(address, "runs", {})["runs"]
        if state["whole"]:
            return state
        time.sleep(0.2)


def _ask(address: str, name: str, question: dict[str, str]) -> Asked:
    seconds, found = [], 0
    for _ in range(TRIES):
        began = time.perf_counter()
        answer = _get(address, "rows", {"run": "run", **question})
        seconds.append(time.perf_counter() - began)
        found = answer["total"]
    return Asked(name=name, found=found, cold=seconds[0], warm=median(seconds[1:]))


def _get(address: str, what: str, asked: dict[str, str]) -> Any:
    with urllib.request.urlopen(f"{address}api/{what}?{urlencode(asked)}", timeout=600) as answer:
        return json.load(answer)


def _peak_bytes(pid: int) -> int:
    """The most memory that the process has held."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else int(psutil.Process(pid).memory_info().rss)
