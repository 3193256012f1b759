"""Asks the viewer of a run of many trajectories, one question at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.view.made_run import make_run
from bench.view.served import RUN, Served, served
from engine.serving.journal.schema import FILE_NAME

TRIES = 7
QUESTIONS = {
    "first page": {},
    "by reward": {"sort": "reward"},
    "one tool, by time": {"tool": "search", "sort": "seconds"},
    "one label, by reward": {"label": "data_source", "word": "maps", "sort": "reward"},
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
    """Figures of a run of so many trajectories, which is made below `home` unless it is there."""
    run = home / RUN
    if not run.is_dir():
        make_run(run, trajectories)
    with served(home) as server:
        began = time.perf_counter()
        state = server.whole()
        read_s = time.perf_counter() - began
        asked = [_rows(server, name, question) for name, question in QUESTIONS.items()]
        asked += _pages(server)
        peak = server.peak_memory
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


def _rows(server: Served, name: str, question: dict[str, str]) -> Asked:
    return _asked(name, lambda: int(server.get("rows", **question)["total"]))


def _pages(server: Served) -> list[Asked]:
    """The pages beside the table; what they find are their rows, bars and lines."""
    one = server.get("rows")["rows"][0]["name"]
    return [
        _asked("one trajectory", lambda: len([server.get("trajectory", name=one)])),
        _asked("a step's timeline", lambda: len(server.get("timeline", step="1")["bars"])),
        _asked("curves by a label", lambda: _lines(server.get("split", by="data_source"))),
        _asked("what there is to choose", lambda: len(server.get("choices")["labels"])),
    ]


def _lines(told: Any) -> int:
    return sum(len(plot["lines"]) for one in told["sections"] for plot in one["plots"])


def _asked(name: str, ask: Callable[[], int]) -> Asked:
    """TRIES times."""
    seconds, found = [], 0
    for _ in range(TRIES):
        began = time.perf_counter()
        found = ask()
        seconds.append(time.perf_counter() - began)
    return Asked(name=name, found=found, cold=seconds[0], warm=median(seconds[1:]))
