"""The user's criteria: functions of the scored trajectory that say whether it stays.

`trajectory.metadata["texts"]` holds the texts of its actions, as reward functions see them, and
`trajectory.metadata["tools"]` the schemas of its session's tools. A function that raises or answers
neither True nor False ends the command: what it would have kept is nobody else's guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine.core.rewards.calling import CallFailed, call_in_thread, call_on_loop, is_async
from engine.core.rewards.reading import shown
from engine.core.rewards.threads import RewardThreads
from engine.errors import EngineError, StartupError
from toolwright.imports import ImportPathError, load_object
from toolwright.types import Trajectory

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


class KeepFailed(EngineError):
    """A function of --keep said neither yes nor no."""


class Keep:
    """One function, async or not. seconds: the longest time of one call."""

    def __init__(self, path: str, folder: Path, *, seconds: float, threads: int) -> None:
        """StartupError when the path names no callable."""
        try:
            self._function: Callable[[Any], Any] = load_object(path, folder)
        except ImportPathError as error:
            raise StartupError(f"--keep: {error}") from error
        if not callable(self._function):
            raise StartupError(f"--keep: {path!r} is no function")
        self._path = path
        self._seconds = seconds
        self._is_async = is_async(self._function)
        self._threads = RewardThreads(threads)

    async def wants(self, trajectory: Trajectory) -> bool:
        """KeepFailed when the function does not say."""
        try:
            if self._is_async:
                said = await call_on_loop(self._function(trajectory), seconds=self._seconds)
            else:
                said = await call_in_thread(
                    self._threads, self._function, trajectory, seconds=self._seconds
                )
        except CallFailed as error:
            raise KeepFailed(f"--keep {self._path}: it {error} for {trajectory.id}") from error
        if isinstance(said, bool) or type(said).__name__ == "bool":  # numpy's is none of Python's
            return bool(said)
        raise KeepFailed(
            f"--keep {self._path} returned {shown(said)} for {trajectory.id}: return True for a "
            "trajectory that stays, else False"
        )

    def close(self) -> None:
        self._threads.close()


class Criteria:
    """All functions of --keep, by name, in the order of the command line. Each is asked about every
    trajectory: how many it alone refuses is known only so."""

    def __init__(self, said: Sequence[str], folder: Path, *, seconds: float, threads: int) -> None:
        """said: as `named` reads it. StartupError as of `Keep` and `named`."""
        self.paths = named(said)
        self._keeps = {
            name: Keep(path, folder, seconds=seconds, threads=threads)
            for name, path in self.paths.items()
        }

    async def refused_by(self, trajectory: Trajectory) -> tuple[str, ...]:
        """Those that say no, in order. KeepFailed when one of them does not say."""
        return tuple(
            [name for name, keep in self._keeps.items() if not await keep.wants(trajectory)]
        )

    def close(self) -> None:
        for keep in self._keeps.values():
            keep.close()


def named(said: Sequence[str]) -> dict[str, str]:
    """Path by name, in order: NAME=PATH, or a path alone, whose function names it. StartupError
    where two have one name."""
    found: dict[str, str] = {}
    for one in said:
        name, is_named, path = one.partition("=")
        if not is_named or not _NAME.fullmatch(name):
            name, path = one.rpartition(":")[2], one
        if name in found:
            raise StartupError(
                f"--keep: {found[name]} and {path} are both called {name!r}: name them, "
                f"--keep NAME={path}"
            )
        found[name] = path
    return found
