"""Which traces of a file are imitated, and which of their tokens.

Invariants
- A trace is taken whole or not at all: one longer than the limit is dropped and counted. Cut, it
  would teach the policy to stop in the middle.
- All traces of one task are on the same side of the split between training and held-out data.
- What the policy wrote and the file marks as not trainable is never a target.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np

from learner.errors import DataError
from learner.intake.origin import Origin
from learner.training.batch import Row, check_vocabulary, rows_of
from toolwright.trajectory_files import UnreadableTrajectories, read_trajectories
from toolwright.types import Author, Trajectory

_HELD_OUT = 1
"""Second word of the seed of the split; the order of an epoch has the number of the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One trajectory to imitate: at least one row, each with a target."""

    task: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What a file holds for imitation; `too_long` traces were dropped."""

    traces: tuple[Trace, ...]
    too_long: int = 0

    def digest(self) -> str:
        """Names tokens and targets in their order: a resumed run must find the same."""
        found = sha256()
        for trace in self.traces:
            for row in trace.rows:
                found.update(row.tokens.tobytes())
                found.update(row.target.tobytes())
        return found.hexdigest()[:16]

    def split(self, fraction: float, seed: int) -> tuple[Traces, Traces]:
        """(to train on, held out): a share of the tasks, one at least, leaves the training data.

        DataError when no task is left to train on.
        """
        tasks = sorted({trace.task for trace in self.traces})
        count = max(1, round(fraction * len(tasks)))
        if count >= len(tasks):
            raise DataError(
                f"sft.heldout.fraction = {fraction:g} of {len(tasks)} tasks leaves none to train "
                "on: give more traces, a smaller fraction, or sft.heldout.data"
            )
        chosen = np.random.default_rng((seed, _HELD_OUT)).permutation(len(tasks))[:count]
        held = {tasks[index] for index in chosen}
        return (
            replace(self, traces=tuple(t for t in self.traces if t.task not in held)),
            Traces(traces=tuple(t for t in self.traces if t.task in held)),
        )


def load_traces(
    path: Path,
    vocabulary: int,
    origin: Origin,
    *,
    max_length: int,
    train_on: Literal["assistant", "all"] = "assistant",
) -> Traces:
    """The trajectories of a file, or of a folder of files, that have a trainable token and at most
    `max_length` tokens.

    train_on: "assistant" has the trainable tokens as targets; "all" those and everything that the
    policy did not write (prompt and observations). A first token is never a target.
    DataError when no trajectory is left, or when one is of another tokenizer than that of `origin`
    or has ids that the policy does not have.
    """
    kept: list[Trace] = []
    lengths: list[int] = []
    for trajectory in _read(path):
        origin.check(trajectory)
        rows = rows_of(widened(trajectory) if train_on == "all" else trajectory, temperature=1.0)
        if not rows:
            continue
        check_vocabulary(rows, vocabulary)
        lengths.append(_length(trajectory))
        if lengths[-1] <= max_length:
            task = trajectory.task.id or trajectory.id
            kept.append(Trace(task=task, rows=tuple(map(_at_temperature_one, rows))))
    if not lengths:
        raise DataError(f"{path} holds no trajectory with a trainable token")
    if not kept:
        raise DataError(
            f"all {len(lengths)} traces of {path} are longer than sft.max_length = {max_length} "
            f"tokens: the shortest has {min(lengths)}"
        )
    return Traces(traces=tuple(kept), too_long=len(lengths) - len(kept))


def widened(trajectory: Trajectory) -> Trajectory:
    """The same with all that the policy did not write as targets, where it has a target at all."""
    if not any(s.trainable for sequence in trajectory.sequences for s in sequence.segments):
        return trajectory
    return replace(
        trajectory,
        sequences=tuple(
            replace(
                sequence,
                segments=tuple(
                    s if s.author is Author.MODEL else replace(s, trainable=True)
                    for s in sequence.segments
                ),
            )
            for sequence in trajectory.sequences
        ),
    )


def _read(path: Path) -> Iterable[Trajectory]:
    try:
        yield from read_trajectories(path)
    except FileNotFoundError as error:
        raise DataError(
            f"no trajectories at {path}: `engine render RECIPE` or `engine sample` writes sft.data"
        ) from error
    except UnreadableTrajectories as error:
        raise DataError(str(error)) from error


def _length(trajectory: Trajectory) -> int:
    """Tokens of the longest sequence."""
    return max(sum(len(s.token_ids) for s in q.segments) for q in trajectory.sequences)


def _at_temperature_one(row: Row) -> Row:
    """Demonstrations are fitted at temperature 1, whatever they were sampled at."""
    return replace(row, temperature=np.ones_like(row.temperature))
