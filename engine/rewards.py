"""Calls the recipe's reward function and keeps its faults away from the run.

A reward function takes a Trajectory (or, with `reward_per_group`, the list of a group's) and
returns a number, a dictionary of named parts whose sum is the reward, or (number, parts); it
may be async. `trajectory.metadata["final_text"]` is the text of the last action, special
tokens kept. A function that raises, takes too long or returns nonsense leaves reward 0, a
masked trajectory and an event.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from engine.errors import StartupError
from toolwright.imports import ImportPathError, load_object
from toolwright.types import Event, RewardPart, Status, StopReason, Trajectory

log = structlog.get_logger("reward")


class RewardFailed(Exception):
    """The function raised, timed out, or returned something that is no reward."""


class Rewards:
    """The reward function of one recipe."""

    def __init__(self, path: str, folder: Path, *, per_group: bool, seconds: float) -> None:
        """StartupError when the path names no callable."""
        try:
            self._function: Callable[[Any], Any] = load_object(path, folder)
        except ImportPathError as error:
            raise StartupError(f"task.reward: {error}") from error
        if not callable(self._function):
            raise StartupError(f"task.reward: {path!r} is no function")
        self._per_group = per_group
        self._seconds = seconds

    async def score(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """The group with rewards, in the same order. Errored members keep reward 0."""
        living = [t for t in trajectories if t.status is not Status.ERRORED]
        began = time.monotonic()
        if self._per_group and living:
            scored = await self._score_group(living)
        else:
            scored = await asyncio.gather(*(self._score_one(t) for t in living))
        spent = time.monotonic() - began
        done = {t.id: replace(t, timings=replace(t.timings, reward_s=spent)) for t in scored}
        return [done.get(t.id, t) for t in trajectories]

    async def _score_one(self, trajectory: Trajectory) -> Trajectory:
        try:
            return _with_reward(trajectory, *_parts(await self._call(trajectory)))
        except RewardFailed as error:
            return _failed(trajectory, error)

    async def _score_group(self, living: list[Trajectory]) -> list[Trajectory]:
        try:
            values = _as_many(await self._call(living), len(living))
            return [_with_reward(t, *_parts(v)) for t, v in zip(living, values, strict=True)]
        except RewardFailed as error:
            return [_failed(t, error) for t in living]

    async def _call(self, argument: Any) -> Any:
        try:
            async with asyncio.timeout(self._seconds):
                if inspect.iscoroutinefunction(self._function):
                    return await self._function(argument)
                return await asyncio.to_thread(self._function, argument)
        except TimeoutError as error:
            raise RewardFailed(f"took more than {self._seconds:g} s") from error
        except Exception as error:
            raise RewardFailed(f"raised {error!r}") from error


def _as_many(values: Any, count: int) -> Sequence[Any]:
    if not isinstance(values, Sequence) or len(values) != count:
        raise RewardFailed(f"returned {type(values).__name__}, not {count} rewards")
    return values


def _parts(value: Any) -> tuple[float, tuple[RewardPart, ...]]:
    if isinstance(value, tuple) and len(value) == 2:
        total, named = value
        return _number(total), _named(named)
    if isinstance(value, Mapping):
        parts = _named(value)
        return sum(part.value for part in parts), parts
    total = _number(value)
    return total, (RewardPart(name="reward", value=total),)


def _named(named: Any) -> tuple[RewardPart, ...]:
    if not isinstance(named, Mapping):
        raise RewardFailed(f"parts are {type(named).__name__}, not a dictionary")
    return tuple(RewardPart(name=str(k), value=_number(v)) for k, v in named.items())


def _number(value: Any) -> float:
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    raise RewardFailed(f"returned {value!r}, not a finite number")


def _with_reward(trajectory: Trajectory, total: float, parts: tuple[RewardPart, ...]) -> Trajectory:
    return replace(trajectory, reward=total, reward_parts=parts)


def _failed(trajectory: Trajectory, error: RewardFailed) -> Trajectory:
    log.warning("reward_failed", trajectory=trajectory.id, error=str(error))
    event = Event(kind="reward_failed", turn=0, data={"error": str(error)})
    return replace(
        trajectory,
        masked=True,
        stop_reason=StopReason.REWARD_ERROR,
        events=(*trajectory.events, event),
    )
