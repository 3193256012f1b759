"""What is timed: questions alone, questions while tools come in, merges, starts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.memory.generated import Generated
from memory.memory import Memory
from memory.search.embedding import Embedder
from memory.store.sqlite import SqliteLog

SUBTASKS = 3
GROUP = 3
"""Tools that a group registers while questions are asked."""
BULK = 500
"""Tools that a group registers while the memory is filled."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Milliseconds, and how many were timed."""

    p50: float
    p99: float
    count: int


@dataclass(frozen=True, kw_only=True)
class Report:
    """embedding: of one subtask, and part of every question. after: the first question of a
    version. busy: questions while another thread merges without a pause."""

    nodes: int
    question: Latency
    busy: Latency
    after: Latency
    graphrag: Latency
    merge: Latency
    embedding: Latency
    merges_per_s: float
    start_s: float
    old_version_s: float
    megabytes: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(folder: Path, nodes: int, questions: int, merges: int, embed: Embedder) -> Report:
    """Fills a memory in `folder` and times it."""
    generated = Generated(0)
    path = folder / "memory.sqlite"
    memory = Memory(SqliteLog(path, embedder="bench"), embed)
    for work in generated.works(nodes, BULK):
        memory.merge_group(work)
    texts = [[generated.text(8) for _ in range(SUBTASKS)] for _ in range(questions)]

    def ask(place: int, **how: Any) -> None:
        memory.retrieve(texts[place % questions], **how)

    ask(0)
    question = timed(ask, questions)
    embedding = timed(lambda place: memory.embed(texts[place][:1]), questions)
    ask(0, scoring="graphrag")
    graphrag = timed(lambda place: ask(place, scoring="graphrag"), questions)
    works = list(generated.works(merges * GROUP, GROUP))
    afters: list[float] = []

    def merge(place: int) -> None:
        memory.merge_group(works[place])

    begin = time.perf_counter()
    merged = timed(merge, merges // 3)
    merges_per_s = merged.count / (time.perf_counter() - begin)
    for place in range(merged.count, 2 * merged.count):
        merge(place)
        afters.append(_seconds(lambda: ask(place)))  # noqa: B023 - called at once
    rest = iter(works[2 * merged.count :])
    busy = _while_merging(lambda: memory.merge_group(next(rest)), ask)
    version = memory.graph.version
    start = _seconds(lambda: Memory(SqliteLog(path, embedder="bench"), embed))
    old = _seconds(lambda: memory.at(version - merges // 2))
    return Report(
        nodes=len(memory.graph.by_id),
        question=question,
        busy=busy,
        after=latency(afters),
        graphrag=graphrag,
        merge=merged,
        embedding=embedding,
        merges_per_s=merges_per_s,
        start_s=start,
        old_version_s=old,
        megabytes=path.stat().st_size / 1e6,
    )


def timed(act: Callable[[int], object], count: int) -> Latency:
    return latency([_seconds(lambda: act(place)) for place in range(count)])  # noqa: B023


def latency(seconds: list[float]) -> Latency:
    found = sorted(seconds)
    return Latency(
        p50=1000 * found[len(found) // 2],
        p99=1000 * found[min(len(found) - 1, int(len(found) * 0.99))],
        count=len(found),
    )


def _while_merging(merge: Callable[[], object], ask: Callable[[int], None]) -> Latency:
    """Questions one after another for as long as another thread has something to merge."""
    done = threading.Event()

    def merging() -> None:
        try:
            while True:
                merge()
        except (StopIteration, RuntimeError):
            pass
        finally:
            done.set()

    thread = threading.Thread(target=merging)
    thread.start()
    seconds: list[float] = []
    while not done.is_set():
        seconds.append(_seconds(lambda: ask(len(seconds))))
    thread.join()
    return latency(seconds)


def _seconds(act: Callable[[], object]) -> float:
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin
