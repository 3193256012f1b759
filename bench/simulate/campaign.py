"""Plays many schedules in worker processes and adds up what happened.

Invariant: the digest of a campaign depends on its seeds alone, not on the jobs. Workers have a
fixed `PYTHONHASHSEED`, because the engine iterates over sets of words.
"""

from __future__ import annotations

import gc
import hashlib
import os
import time
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context

from bench.simulate.playing.play import Studio, studio
from bench.simulate.schedule import schedule_of
from bench.simulate.verdict import Failure, outcome, shortest

CHUNK = 10
"""Schedules that a worker plays before it reports."""
HASH_SEED = "PYTHONHASHSEED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One schedule. digest: of its history; "" where it did not come to its end."""

    seed: int
    digest: str
    failure: Failure | None
    virtual_s: float
    cpu_s: float
    counts: Counter[str]


@dataclass(slots=True)
class Totals:
    """What all schedules came to so far."""

    schedules: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, Failure]] = field(default_factory=list)
    _digests: dict[int, str] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        self.schedules += 1
        self.virtual_s += result.virtual_s
        self.cpu_s += result.cpu_s
        self.counts.update(result.counts)
        if result.failure is not None:
            self.failures.append((result.seed, result.failure))
        self._digests[result.seed] = result.digest

    @property
    def digest(self) -> str:
        """Digest of all histories in the order of their seeds."""
        text = "\n".join(f"{seed} {digest}" for seed, digest in sorted(self._digests.items()))
        return hashlib.sha256(text.encode()).hexdigest()


def results(
    seeds: Sequence[int], *, jobs: int, workers: int = 0, shrink: bool = True
) -> Generator[Result, None, None]:
    """Each schedule's result, in the order of the seeds. Close the iterator to stop early. workers:
    of the engine."""
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    before = os.environ.get(HASH_SEED)
    os.environ[HASH_SEED] = "0"
    try:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            pending = [pool.submit(_played, chunk, workers, shrink) for chunk in chunks]
            try:
                for future in pending:
                    yield from future.result()
            finally:
                for future in pending:
                    future.cancel()
    finally:
        if before is None:
            del os.environ[HASH_SEED]
        else:
            os.environ[HASH_SEED] = before


@cache
def _studio() -> Studio:
    """The worker's, until it ends."""
    entered = studio()
    made = entered.__enter__()
    _KEPT.append(entered)
    gc.freeze()  # what was imported is never garbage
    return made


_KEPT: list[object] = []


def _played(seeds: Sequence[int], workers: int, shrink: bool) -> list[Result]:
    return [played(_studio(), seed, workers=workers, shrink=shrink) for seed in seeds]


def played(place: Studio, seed: int, *, workers: int = 0, shrink: bool) -> Result:
    """One schedule's result. shrink: look for the shortest list of faults of a failure."""
    began, schedule = time.process_time(), schedule_of(seed, workers)
    found = outcome(place, schedule)
    cpu_s = time.process_time() - began
    failure = found.failure
    if failure is not None and shrink:
        failure = Failure(
            invariant=failure.invariant,
            text=failure.text,
            faults=failure.faults,
            shrunken=shortest(place, schedule, failure.invariant),
        )
    return Result(
        seed=seed,
        digest=found.played.digest if found.played else "",
        failure=failure,
        virtual_s=found.played.seconds if found.played else 0.0,
        cpu_s=cpu_s,
        counts=found.played.counts if found.played else Counter(),
    )
