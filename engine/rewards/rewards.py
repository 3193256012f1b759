"""Calls the recipe's reward function and keeps its faults away from the run.

A reward function takes a Trajectory (or, with `reward_per_group`, the list of a group's) and
returns a number, a dictionary of named parts whose sum is the reward, or (number, parts); it
may be async. `trajectory.metadata["final_text"]` is the text of the last action, special
tokens kept. A function that raises, takes too long or returns nonsense leaves reward 0, a
masked trajectory and an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, SupportsFloat

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
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                if inspect.iscoroutinefunction(self._function):
                    return await self._function(argument)
                value = await _in_thread(self._function, argument)
                return await value if inspect.isawaitable(value) else value
        except RewardFailed:
            raise
        except Exception as error:
            if limit.expired():
                raise RewardFailed(f"took more than {self._seconds:g} s") from error
            raise RewardFailed(f"raised {error!r}") from error


async def _in_thread(function: Callable[[Any], Any], argument: Any) -> Any:
    """Like asyncio.to_thread, in a daemon thread: a function that never returns does not use up
    a pool, and does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def settle(outcome: tuple[Any, BaseException | None]) -> None:
        if not done.done():
            done.set_result(outcome)

    def work() -> None:
        value, error = None, None
        try:
            value = function(argument)
        except (Exception, SystemExit) as raised:  # noqa: BLE001 (handed to the one who waits)
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, (value, error))

    threading.Thread(target=work, name="reward", daemon=True).start()
    value, error = await done
    if error is not None:
        raise RewardFailed(f"raised {error!r}") from error
    return value


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
    """A float of whatever number it is, numpy's and torch's included."""
    try:
        number = float(value) if isinstance(value, SupportsFloat) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise RewardFailed(f"returned {value!r}, not a finite number")
    return number


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
