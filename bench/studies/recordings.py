"""The recorded groups of a run, by the stage of training in which they were sampled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.core.trajectory.record import with_texts
from engine.core.trajectory.state import fold
from engine.serving.journal.reader import reading
from toolwright.types import Trajectory

Stages = Sequence[tuple[int, int]]
"""First step and the step after the last, of each stage."""


def stage_of(group: Sequence[Trajectory], stages: Stages) -> tuple[int, int] | None:
    """The stage of a group, by the oldest weights that wrote its first member."""
    versions = group[0].weight_versions
    step = versions[0].step if versions else -1
    return next(((first, end) for first, end in stages if first <= step < end), None)


def staged_groups(
    folder: Path, stages: Stages, *, texts: bool = False
) -> Iterator[list[Trajectory]]:
    """Complete groups that the journal in `folder` holds, of these stages, in the order of the
    run. texts: with the texts of the actions, as reward functions see them; they are folded from
    the log. Raises StartupError if there is no journal."""
    with reading(folder) as reader:
        for records in reader.groups():
            group = [record.trajectory() for record in records]
            if stage_of(group, stages) is None:
                continue
            if texts:
                states = [fold(reader.log(record.attempt)) for record in records]
                group = [with_texts(*pair) for pair in zip(group, states, strict=True)]
            yield group
