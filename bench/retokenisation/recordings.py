"""Recorded trajectories in their groups, from a run's folder or from files.

Masked trajectories are left out: the learner does not train on them. Trajectories with images are
left out too: the places of images have no text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.errors import BenchError
from engine.errors import StartupError
from engine.serving.journal.reader import reading
from engine.serving.journal.schema import FILE_NAME
from learner.errors import DataError
from learner.intake.tokenizer_check import TokenizerCheck
from toolwright.common.v1 import trajectory_pb2
from toolwright.trajectory_files import UnreadableTrajectories, read_trajectories
from toolwright.types import Group, Trajectory
from toolwright.wire import trajectory_from_proto


def groups_of(source: Path, most: int, policy: Path) -> list[Group]:
    """The newest groups, with `most` trajectories or a few more. Raises BenchError if there is
    nothing to read, or if the trajectories have another tokenizer than `policy`."""
    try:
        found = _grouped(_usable(_trajectories(source)))
    except (StartupError, UnreadableTrajectories, FileNotFoundError) as error:
        raise BenchError(
            f"no trajectories in {source}: {error}. Name a run's folder, or what `engine sample` "
            "wrote"
        ) from error
    chosen: list[Group] = []
    while found and sum(len(group.trajectories) for group in chosen) < most:
        chosen.append(found.pop())
    if not chosen:
        raise BenchError(
            f"{source} holds no trajectory that is not masked: the journal of a run keeps all of "
            'them with engine.history = "all"'
        )
    origin = TokenizerCheck(policy)
    try:
        for group in chosen:
            for one in group.trajectories:
                origin.check(one)
    except DataError as error:
        raise BenchError(str(error)) from error
    return chosen[::-1]


def _trajectories(source: Path) -> Iterator[Trajectory]:
    if not (source / FILE_NAME).exists():
        yield from read_trajectories(source)
        return
    with reading(source) as reader:
        for records in reader.groups():
            for one in records:
                yield trajectory_from_proto(trajectory_pb2.Trajectory.FromString(one.data))


def _usable(trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    return (one for one in trajectories if not one.masked and not one.shown_media)


def _grouped(trajectories: Iterable[Trajectory]) -> list[Group]:
    """In the order in which each group was first seen."""
    members: dict[str, list[Trajectory]] = {}
    for one in trajectories:
        members.setdefault(one.group_id, []).append(one)
    return [Group(id=name, trajectories=tuple(own)) for name, own in members.items()]
