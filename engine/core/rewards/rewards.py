"""Calls the recipe's reward function and keeps its errors away from the run.

A reward function takes a Trajectory, or with `reward_per_group` the list of a group's. It may be
async. It returns a number, a dictionary of named parts whose sum is the reward, (number, parts), or
a Score. A class, or any object with `reward_options`, is called with them first and gives the
function. `trajectory.metadata["final_text"]` is the text of the last action, without its end of
turn. A function that raises, takes too long or returns an unusable value gives a failed Score:
reward 0, outside of loss and baseline, with the event `reward_failed`.
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

from engine.core.rewards.calling import CallFailed, RecipeFunction
from engine.core.rewards.reading import ScoreRefused, one_each, read_score
from engine.core.rewards.score import REWARD_FAILED, Score, failure
from engine.core.rewards.settle import settled
from engine.core.rewards.stops import StopRules
from engine.errors import StartupError
from toolwright.types import Status, Trajectory

MOST_CAUSES = 20
OTHERS = "other causes"

log = structlog.get_logger("reward")


def _check_arguments(path: str, function: Callable[..., Any], given: str) -> None:
    """Raises StartupError for a function that cannot be called with one argument."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # C code without a signature
        return
    try:
        signature.bind(object())
    except TypeError as error:
        raise StartupError(
            f"task.reward: {path!r} takes {signature}, but is called with {given} alone ({error}); "
            "give the other arguments defaults"
        ) from error


class Rewards:
    """The reward function of a recipe, and its rules for stops."""

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
        """per_group: the function takes the list of a group's trajectories. seconds: longest time
        of a call.

        Raises StartupError if path and options give no function of one argument.
        """
        self._function = RecipeFunction(
            "task.reward", path, folder, seconds=seconds, threads=threads, options=options
        )
        given = "a list of trajectories" if per_group else "a trajectory"
        _check_arguments(path, self._function.function, given)
        self.per_group = per_group
        self.rules = rules or StopRules()
        self.failures: Counter[str] = Counter()
        """Number of failed trajectories by cause; causes beyond MOST_CAUSES are OTHERS."""

    async def score_one(self, trajectory: Trajectory) -> Score:
        """The score of one trajectory. For functions that are not `per_group`."""
        try:
            return read_score(await self._function.call(trajectory), trajectory)
        except (CallFailed, ScoreRefused) as error:
            return self._failure(trajectory, error)

    async def score_group(self, trajectories: Sequence[Trajectory]) -> list[Score]:
        """The score of each trajectory, in order.

        An unusable value fails its own member, or all of them if the function takes the group.
        """
        if not self.per_group:
            if len(trajectories) == 1:  # as for each member of a group: no task of its own
                return [await self.score_one(trajectories[0])]
            return list(await asyncio.gather(*(self.score_one(t) for t in trajectories)))
        if not trajectories:
            return []
        try:
            values = one_each(
                await self._function.call(list(trajectories)), len(trajectories), "rewards"
            )
            return [read_score(value, t) for value, t in zip(values, trajectories, strict=True)]
        except (CallFailed, ScoreRefused) as error:
            return [self._failure(t, error) for t in trajectories]

    async def score(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """The group with its rewards, settled, in the same order. Errored members get none."""
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
        """Ends the threads; no scoring afterwards."""
        self._function.close()

    def _failure(self, trajectory: Trajectory, error: Exception) -> Score:
        """Counts a failure. Warns at the first one of a cause, and at each power of ten."""
        cause = str(error)
        if cause not in self.failures and len(self.failures) >= MOST_CAUSES:
            cause = OTHERS
        self.failures[cause] += 1
        count = self.failures[cause]
        say = log.warning if count == 10 ** (len(str(count)) - 1) else log.info
        say("reward_failed", trajectory=trajectory.id, error=str(error), times=count)
        return failure(REWARD_FAILED, str(error))
