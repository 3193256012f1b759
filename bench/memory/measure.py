"""Times questions alone, questions while tools come in, merges and starts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.measuring.spread import Spread
from bench.memory.generated import Generated
from memory.memory import Memory
from memory.search.embedding import Embedder
from memory.store.sqlite import SqliteLog

SUBTASKS = 3
GROUP = 3
"""Tools that a group registers during the measurement."""
BULK = 500
"""Tools that a group registers while the memory is filled."""
TIMED = {
    "question": "question of three subtasks",
    "after": "the first of a new version",
    "busy": "while tools come in without a pause",
    "graphrag": "question, GraphRAG score",
    "embedding": "embedding of one subtask, in all of these",
    "merge": "merge of a group with three new tools",
}
"""Latencies of the report, by key."""


def measure(
    folder: Path, nodes: int, questions: int, merges: int, embed: Embedder
) -> dict[str, Any]:
    """Fills a memory in `folder` and times it. Latencies are in ms, with the number of values."""
    generated = Generated(0)
    path = folder / "memory.sqlite"
    memory = Memory(SqliteLog(path, embedder="bench"), embed)
    for work in generated.works(nodes, BULK):
        memory.merge_group(work)
    texts = [[generated.text(8) for _ in range(SUBTASKS)] for _ in range(questions)]

    def question(place: int, **how: Any) -> None:
        memory.retrieve(texts[place % questions], **how)

    def graphrag(place: int) -> None:
        question(place, scoring="graphrag")

    question(0)
    found = {
        "question": _latency(_timed(question, questions)),
        "embedding": _latency(_timed(lambda place: memory.embed(texts[place][:1]), questions)),
    }
    graphrag(0)
    found["graphrag"] = _latency(_timed(graphrag, questions))
    works = iter(list(generated.works(merges * GROUP, GROUP)))

    def merge(_place: int = 0) -> None:
        memory.merge_group(next(works))

    begin = time.perf_counter()
    found["merge"] = _latency(_timed(merge, merges // 3))
    merges_per_s = merges // 3 / (time.perf_counter() - begin)
    after = []
    for place in range(merges // 3):
        merge()
        after += _timed(question, 1, first=place)
    found["after"] = _latency(after)
    found["busy"] = _latency(_while_merging(merge, question))
    version = memory.graph.version
    return {
        "nodes": len(memory.graph.by_id),
        **found,
        "merges_per_s": merges_per_s,
        "start_s": _timed(lambda _: Memory(SqliteLog(path, embedder="bench"), embed), 1)[0],
        "old_version_s": _timed(lambda _: memory.at(version - merges // 2), 1)[0],
        "megabytes": path.stat().st_size / 1e6,
    }


def _timed(act: Callable[[int], object], count: int, *, first: int = 0) -> list[float]:
    """Seconds of each of `count` calls with the numbers from `first` on."""
    seconds = []
    for place in range(first, first + count):
        begin = time.perf_counter()
        act(place)
        seconds.append(time.perf_counter() - begin)
    return seconds


def _latency(seconds: list[float]) -> dict[str, float]:
    return {**asdict(Spread.of_seconds(seconds)), "count": len(seconds)}


def _while_merging(merge: Callable[[], None], question: Callable[[int], None]) -> list[float]:
    """Seconds of questions, one after another, until another thread has merged all groups."""
    done = threading.Event()

    def merging() -> None:
        try:
            while True:
                merge()
        except StopIteration:
            done.set()

    thread = threading.Thread(target=merging)
    thread.start()
    seconds: list[float] = []
    while not done.is_set():
        seconds += _timed(question, 1, first=len(seconds))
    thread.join()
    return seconds
