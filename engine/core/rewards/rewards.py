"""Calls the recipe's reward function and keeps its faults away from the run.

A reward function takes a Trajectory (or, with `reward_per_group`, the list of a group's) and
returns a number, a dictionary of named parts whose sum is the reward, (number, parts), or a Score;
it may be async. With `reward_options`, and where the path names a class, the object is called with
them first and gives the function. `trajectory.metadata["final_text"]` is the text of the last
action, without the end of its turn. A function that raises, takes too long or returns nonsense
leaves a Score that says so: reward 0, out of the loss and out of the baseline, with the event
`reward_failed`.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from engine.core.rewards.calling import (
    CallFailed,
    call_in_thread,
    call_on_loop,
    is_async,
    with_options,
)
from engine.core.rewards.reading import ScoreRefused, one_each, read_score
from engine.core.rewards.score import REWARD_FAILED, Score, failure
from engine.core.rewards.settle import settled
from engine.core.rewards.stops import StopRules
from engine.core.rewards.threads import RewardThreads
from engine.errors import StartupError
from toolwright.imports import ImportPathError, load_object
from toolwright.types import Status, Trajectory

MOST_CAUSES = 20
OTHERS = "other causes"

log = structlog.get_logger("reward")


def _check_arguments(path: str, function: Callable[..., Any], given: str) -> None:
    """StartupError for a function that cannot be called with one argument."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # of C code, which does not tell
        return
    try:
        signature.bind(object())
    except TypeError as error:
        raise StartupError(
            f"task.reward: {path!r} takes {signature}, and is called with {given} alone ({error})"
        ) from error


class Rewards:
    """The reward function of one recipe, and what its stops mean.

    per_group: the function takes the list of a group's trajectories.
    """

    def __init__(
        self,
        path: str,
        folder: Path,
        *,
        per_group: bool,
        seconds: float,
        threads: int = 8,
        rules: StopRules | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """StartupError when the path names nothing that can be called with one argument, or that
        takes the options."""
        try:
            self._function: Callable[[Any], Any] = with_options(
                load_object(path, folder), options or {}
            )
        except ImportPathError as error:
            raise StartupError(f"task.reward: {error}") from error
        except (TypeError, ValueError) as error:
            raise StartupError(f"task.reward_options do not fit {path!r}: {error}") from error
        if not callable(self._function):
            raise StartupError(f"task.reward: {path!r} is no function")
        _check_arguments(
            path, self._function, "a list of trajectories" if per_group else "a trajectory"
        )
        self.per_group = per_group
        self.rules = rules or StopRules()
        self._seconds = seconds
        self._is_async = is_async(self._function)
        self._threads = RewardThreads(threads)
        self.failures: Counter[str] = Counter()
        """Trajectories without a reward, by cause; causes beyond MOST_CAUSES are OTHERS."""

    @property
    def lost_threads(self) -> int:
        """Threads of calls that are beyond their time and have not returned."""
        return self._threads.lost

    async def score_one(self, trajectory: Trajectory) -> Score:
        """The function's score of one trajectory. Only where the function is not `per_group`."""
        try:
            return read_score(await self._call(trajectory), trajectory)
        except (CallFailed, ScoreRefused) as error:
            return self._failure(trajectory, error)

    async def score_group(self, trajectories: Sequence[Trajectory]) -> list[Score]:
        """A score for each, in order. A value that cannot be used fails its own member where the
        function takes one trajectory, and all of them where it takes the group."""
        if not self.per_group:
            return list(await asyncio.gather(*(self.score_one(t) for t in trajectories)))
        if not trajectories:
            return []
        try:
            values = one_each(await self._call(list(trajectories)), len(trajectories), "rewards")
            return [read_score(value, t) for value, t in zip(values, trajectories, strict=True)]
        except (CallFailed, ScoreRefused) as error:
            return [self._failure(t, error) for t in trajectories]

    async def score(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """The group with rewards, settled, in the same order. Errored members are not asked
        about."""
        living = [t for t in trajectories if t.status is not Status.ERRORED]
        began = time.monotonic()
        scores = await self.score_group(living)
        spent = time.monotonic() - began
        given = {t.id: score for t, score in zip(living, scores, strict=True)}
        out = []
        for trajectory in trajectories:
            done = settled(trajectory, given.get(trajectory.id), self.rules)
            if trajectory.id in given:
                done = replace(done, timings=replace(done.timings, reward_s=spent))
            out.append(done)
        return out

    def close(self) -> None:
        """Ends the threads. Not to be scored with afterwards."""
        self._threads.close()

    async def _call(self, argument: Any) -> Any:
        if self._is_async:
            return await call_on_loop(self._function(argument), seconds=self._seconds)
        return await call_in_thread(self._threads, self._function, argument, seconds=self._seconds)

    def _failure(self, trajectory: Trajectory, error: Exception) -> Score:
        """People are warned of a cause once, and again at each power of ten."""
        cause = str(error)
        if cause not in self.failures and len(self.failures) >= MOST_CAUSES:
            cause = OTHERS
        self.failures[cause] += 1
        count = self.failures[cause]
        say = log.warning if count == 10 ** (len(str(count)) - 1) else log.info
        say("reward_failed", trajectory=trajectory.id, error=str(error), times=count)
        return failure(REWARD_FAILED, str(error))
