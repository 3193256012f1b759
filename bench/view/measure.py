"""Times the answers of the viewer over a run of many trajectories, one question at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.measuring.usage import on_disk
from bench.view.made_run import make_run
from bench.view.served import RUN, Served, served
from console.machine.memory import resident_peak
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


def measure(home: Path, trajectories: int) -> dict[str, Any]:
    """Figures of a run below `home`. Makes the run with so many trajectories if it is missing."""
    run = home / RUN
    if not run.is_dir():
        make_run(run, trajectories)
    with served(home) as server:
        began = time.perf_counter()
        state = server.whole()
        read_s = time.perf_counter() - began
        questions = [_rows(server, name, question) for name, question in QUESTIONS.items()]
        questions += _pages(server)
        peak = resident_peak(server.pid)
    return {
        "rows": state["rows"],
        "read_s": read_s,
        "journal_mib": (run / FILE_NAME).stat().st_size / 2**20,
        "index_mib": on_disk(home / "toolwright" / "view") / 2**20,
        "peak_mib": peak / 2**20,
        "questions": questions,
    }


def _rows(server: Served, name: str, question: dict[str, str]) -> dict[str, Any]:
    return _timed(name, lambda: int(server.get("rows", **question)["total"]))


def _pages(server: Served) -> list[dict[str, Any]]:
    """The pages beside the table, with the number of their rows, bars and lines."""
    one = server.get("rows")["rows"][0]["name"]
    return [
        _timed("one trajectory", lambda: len([server.get("trajectory", name=one)])),
        _timed("a step's timeline", lambda: len(server.get("timeline", step="1")["bars"])),
        _timed("curves by a label", lambda: _lines(server.get("split", by="data_source"))),
        _timed("what there is to choose", lambda: len(server.get("choices")["labels"])),
    ]


def _lines(found: Any) -> int:
    return sum(len(plot["lines"]) for one in found["sections"] for plot in one["plots"])


def _timed(name: str, question: Callable[[], int]) -> dict[str, Any]:
    """One question: seconds of the first answer (cold) and the median of the others (warm)."""
    seconds, found = [], 0
    for _ in range(TRIES):
        began = time.perf_counter()
        found = question()
        seconds.append(time.perf_counter() - began)
    return {"name": name, "found": found, "cold_s": seconds[0], "warm_s": median(seconds[1:])}
