"""The user's filter: a function of the scored trajectory that says whether it stays.

`trajectory.metadata["texts"]` holds the texts of its actions, as reward functions see them. A
filter that raises or answers neither True nor False ends the command: what it would have kept is
nobody else's guess.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.errors import EngineError, StartupError
from engine.rewards.calling import CallFailed, call_in_thread, call_on_loop, is_async
from engine.rewards.reading import shown
from engine.rewards.threads import RewardThreads
from toolwright.imports import ImportPathError, load_object
from toolwright.types import Trajectory


class KeepFailed(EngineError):
    """The function of --keep said neither yes nor no."""


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


def rewarded(trajectory: Trajectory) -> bool:
    """For `--keep engine.sample.keep:rewarded`: the reward is above 0."""
    return trajectory.reward > 0
