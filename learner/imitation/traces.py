"""The traces of a file, and their targets.

Invariants
- A trace longer than the limit is dropped and counted, never cut: a cut trace would teach the
  policy to stop in the middle.
- All traces of one task are on the same side of the split between training and held-out data.
- Tokens of the policy that the file marks as not trainable are never targets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np

from learner.errors import DataError
from learner.intake.tokenizer_check import TokenizerCheck
from learner.training.batch import Row, check_vocabulary, rows_of
from toolwright.trajectory_files import UnreadableTrajectories, read_trajectories
from toolwright.types import Author, Trajectory

_HELD_OUT = 1
"""Second part of the split's seed. The order of an epoch has the epoch's number there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One trajectory to imitate: at least one row, each with a target."""

    task: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """The traces of a file."""

    traces: tuple[Trace, ...]
    too_long: int = 0
    """Number of traces that were dropped for their length."""

    def digest(self) -> str:
        """Hash of tokens and targets in their order; a resumed run must find the same."""
        found = sha256()
        for trace in self.traces:
            for row in trace.rows:
                found.update(row.tokens.tobytes())
                found.update(row.target.tobytes())
        return found.hexdigest()[:16]

    def split(self, fraction: float, seed: int) -> tuple[Traces, Traces]:
        """(training data, held-out data): a share of the tasks, at least one, is held out.

        Raises DataError if no task is left to train on.
        """
        tasks = sorted({trace.task for trace in self.traces})
        count = max(1, round(fraction * len(tasks)))
        if count >= len(tasks):
            raise DataError(
                f"sft.heldout.fraction = {fraction:g} of {len(tasks)} tasks leaves no task to "
                "train on: give more traces, a smaller fraction, or sft.heldout.data"
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
    tokenizer: TokenizerCheck,
    *,
    max_length: int,
    train_on: Literal["assistant", "all"] = "assistant",
) -> Traces:
    """Trajectories of a file, or of a folder of files, with a trainable token and the right length.

    max_length: in tokens. train_on: with "assistant" the trainable tokens are targets, with "all"
    also the prompt and the observations. A first token is never a target.

    Raises DataError if no trajectory is left, and for a trajectory with another tokenizer or with
    ids that the policy lacks.
    """
    kept: list[Trace] = []
    lengths: list[int] = []
    for trajectory in _read(path):
        tokenizer.check(trajectory)
        rows = rows_of(widened(trajectory) if train_on == "all" else trajectory, temperature=1.0)
        if not rows:
            continue
        check_vocabulary(rows, vocabulary)
        lengths.append(_length(trajectory))
        if lengths[-1] <= max_length:
            task = trajectory.task.id or trajectory.id
            kept.append(Trace(task=task, rows=tuple(map(_at_temperature_one, rows))))
    if not lengths:
        raise DataError(f"{path} has no trajectory with a trainable token: set sft.data to another")
    if not kept:
        raise DataError(
            f"all {len(lengths)} traces of {path} are longer than sft.max_length = {max_length} "
            f"tokens: the shortest has {min(lengths)}, set it to that or more"
        )
    return Traces(traces=tuple(kept), too_long=len(lengths) - len(kept))


def widened(trajectory: Trajectory) -> Trajectory:
    """The trajectory with all tokens of other authors as targets too; unchanged without targets."""
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
    """Number of tokens of the longest sequence."""
    return max(sum(len(s.token_ids) for s in q.segments) for q in trajectory.sequences)


def _at_temperature_one(row: Row) -> Row:
    """Demonstrations are fitted at temperature 1, whatever they were sampled at."""
    return replace(row, temperature=np.ones_like(row.temperature))
