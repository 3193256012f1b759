"""Trajectories in files: length-prefixed messages, one after the other, in one file or in a folder
of files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from google.protobuf.proto import parse_length_prefixed, serialize_length_prefixed

from toolwright import types as t
from toolwright.common.v1 import trajectory_pb2 as pb
from toolwright.reading.files import open_regular
from toolwright.wire import trajectory_from_proto, trajectory_to_proto

SUFFIX = ".trajectories"
"""Ending of a finished file in a folder."""
UNFINISHED = ".unfinished"
"""Ending of a file that is still being written."""


class UnreadableTrajectories(ValueError):
    """A path that is not a trajectories file or a folder of them, or is cut short."""


def write_trajectories(path: Path, trajectories: Iterable[t.Trajectory]) -> int:
    """Writes a file of length-prefixed messages, whole or not at all; returns how many."""
    count = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + UNFINISHED)
    with unfinished.open("wb") as file:
        for trajectory in trajectories:
            message = trajectory_to_proto(trajectory)
            serialize_length_prefixed(message, file)  # type: ignore[arg-type]
            count += 1
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    return count


def read_trajectories(path: Path) -> Iterator[t.Trajectory]:
    """Trajectories of a file that `write_trajectories` wrote, or of all files NAME.trajectories of
    a folder, in the order of their names. Raises UnreadableTrajectories for other files."""
    for file in _files(path):
        yield from _of_file(file)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    names = sorted(file.name for file in path.iterdir())
    if unfinished := [name for name in names if name.endswith(UNFINISHED)]:
        raise UnreadableTrajectories(
            f"{path} is not whole, {unfinished[0]} is still written: wait for the command that "
            "writes it, or start it again"
        )
    found = [path / name for name in names if name.endswith(SUFFIX)]
    if not found:
        raise UnreadableTrajectories(
            f"{path} is a folder without a file *{SUFFIX}: `engine sample --shard-size` writes them"
        )
    return found


def _of_file(path: Path) -> Iterator[t.Trajectory]:
    with open_regular(path) as file:
        while True:
            try:
                message = parse_length_prefixed(pb.Trajectory, file)  # type: ignore[arg-type]
                trajectory = None if message is None else trajectory_from_proto(message)
            except Exception as error:
                raise UnreadableTrajectories(
                    f"{path} is not a trajectories file, or is cut: {error}; "
                    "`engine render RECIPE` writes one"
                ) from error
            if trajectory is None:
                return
            yield trajectory
