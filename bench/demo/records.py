"""Reads what engine and learner leave in a run folder.

Owns the names of their files and fields. A file that is still being written is read up to its
last whole line. Of a version that was evaluated twice (a restart), the last evaluation counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.demo.errors import RecordBroken
from bench.demo.types import Evaluation, Record, Sample, Step

EVALUATIONS = "evaluations.jsonl"
SAMPLES = "samples.jsonl"
STEPS = "learner.jsonl"


class Tail:
    """New whole lines of a growing JSONL file, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """Rows since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return list(_rows(whole, self._path))


def read_record(folder: Path) -> Record:
    """The whole record of a run. RecordBroken for a line that does not fit."""
    evaluations = {(e.suite, e.step): e for e in map(evaluation, Tail(folder / EVALUATIONS).read())}
    samples = {(s.suite, s.step, s.index): s for s in map(sample, Tail(folder / SAMPLES).read())}
    steps = {s.step: s for s in map(step, Tail(folder / STEPS).read())}
    return Record(
        steps=tuple(steps[number] for number in sorted(steps)),
        evaluations=tuple(sorted(evaluations.values(), key=lambda e: e.step)),
        samples=tuple(sorted(samples.values(), key=lambda s: (s.step, s.index))),
    )


def evaluation(row: Mapping[str, Any]) -> Evaluation:
    try:
        return Evaluation(
            suite=str(row["suite"]),
            step=int(row["step"]),
            n=int(row["n"]),
            success=float(row["reward"]),
            stderr=float(row["stderr"]),
            seconds=float(row["seconds"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RecordBroken(f"{EVALUATIONS}: {error!r} in {row}") from error


def sample(row: Mapping[str, Any]) -> Sample:
    try:
        return Sample(
            suite=str(row["suite"]),
            step=int(row["step"]),
            index=int(row["index"]),
            reward=float(row["reward"]),
            stop_reason=str(row["stop_reason"]),
            answers=tuple(map(str, row.get("answers", ()))),
            segments=tuple((str(s["author"]), str(s["text"])) for s in row["segments"]),
            timings={str(k): float(v) for k, v in row.get("timings", {}).items()},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RecordBroken(f"{SAMPLES}: {error!r} in {row}") from error


def step(row: Mapping[str, Any]) -> Step:
    try:
        values = {
            name: float(value)
            for name, value in row.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        # A batch of masked trajectories only has no reward.
        return Step(step=int(row["step"]), reward=float(row.get("reward", math.nan)), values=values)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordBroken(f"{STEPS}: {error!r} in {row}") from error


def _rows(data: bytes, path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(data.splitlines(), 1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            raise RecordBroken(f"{path}, line {number} of those read: {error}") from error
